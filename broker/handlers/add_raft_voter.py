"""AddRaftVoter (80): an operator adds a controller to the voters.

Versions:

* 0: KIP-853; flexible from the start.
* 1: the answer may come before the commit (KIP-1186).
"""

from typing import TYPE_CHECKING

from broker.handlers.voter_change import VoterChangeHandler
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.wire.voter_messages import VOTER_VERSIONS

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it


class AddRaftVoterHandler(VoterChangeHandler):
    """Serves AddRaftVoter on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.ADD_RAFT_VOTER
    versions = VOTER_VERSIONS[api_key]


def make(parts: "HandlerParts") -> AddRaftVoterHandler:
    """Make the handler of AddRaftVoter."""
    return AddRaftVoterHandler(parts.node)
