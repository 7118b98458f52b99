"""Who votes in the quorum that this directory belongs to, and whether this node is the one.

Raises before anything is written: a node that took part under another identity could vote twice.
"""

from collections.abc import Sequence

from kafka_protocol.errors import TidemarkError
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet


class QuorumConfigError(TidemarkError):
    """The voters on disk or in the configuration do not let this node run. Names both sides."""


def find_voters(facts: QuorumFacts, me: ReplicaKey, static_voters: Sequence[int]) -> VoterSet:
    """Decide who the voters are.

    Args:
        facts: what log and snapshot say.
        me: this node and its metadata directory.
        static_voters: ids in `controller.quorum.voters`; they count with kraft.version 0 only.

    Returns:
        The voters; this node is the only one of them.

    Raises:
        QuorumConfigError: there are none, this node is not among them or has another directory, or
            there are others.
    """
    if facts.kraft_version == 0:
        if not static_voters:
            raise QuorumConfigError(
                "no voters: the directory was formatted without --standalone, and "
                "controller.quorum.voters is not set"
            )
        keys = [ReplicaKey(voter_id) for voter_id in sorted(set(static_voters))]
        voters = VoterSet(tuple(Voter(key) for key in keys))
    else:
        assert facts.voters is not None, "kraft.version 1 comes with voters"
        voters = facts.voters
    mine = voters.get(me.id)
    if mine is None:
        raise QuorumConfigError(
            f"node.id {me.id} is not one of the quorum's voters {list(voters.ids)}"
        )
    if facts.kraft_version > 0 and mine.key != me:
        raise QuorumConfigError(
            f"the quorum knows voter {me.id} with directory id "
            f"{uuid_to_text(mine.key.directory_id)}, this one is {uuid_to_text(me.directory_id)}"
        )
    if not voters.is_sole(me):
        raise QuorumConfigError(
            f"the quorum has voters {list(voters.ids)}: this version runs a quorum of one"
        )
    return voters
