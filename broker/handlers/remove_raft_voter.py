"""RemoveRaftVoter (81): an operator removes a controller from the voters.

Versions:

* 0: KIP-853; flexible from the start.
"""

from typing import TYPE_CHECKING

from broker.handlers.voter_change import VoterChangeHandler
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.wire.voter_messages import VOTER_VERSIONS

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it


class RemoveRaftVoterHandler(VoterChangeHandler):
    """Serves RemoveRaftVoter on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.REMOVE_RAFT_VOTER
    versions = VOTER_VERSIONS[api_key]


def make(parts: "HandlerParts") -> RemoveRaftVoterHandler:
    """Make the handler of RemoveRaftVoter."""
    return RemoveRaftVoterHandler(parts.node)
