"""Rules for taking over an epoch from another node.

Epochs never fall and are 32-bit numbers. A single absurd one, or thousands of small steps within
seconds, would make elections permanently impossible. So small steps are accepted up to a bound
above the newest epoch in which a leader is known to have worked. A larger step is accepted only in
an answer from an address in the voter set or the settings. In a request it is refused, because any
client of the listener can name any voter there.

DIFFERS: Kafka takes over every epoch of every request and answer.
"""

from typing import Final

from metadata_topic.raft.events import EPOCH_MAX
from metadata_topic.raft.leading import has_majority
from metadata_topic.raft.messages import ANY_REPLICA, FetchRequest, Node
from metadata_topic.raft.replica import Replica
from metadata_topic.raft.role_states import Follower, Leader

EPOCH_STEP_MAX: Final = 1000
"""Bound of all requests together: steps above the newest epoch that had a leader."""
EPOCH_AFTER_JUMP_MAX: Final = EPOCH_MAX - (1 << 20)
"""Highest epoch after a larger step: elections must stay possible long after it."""


def believes_request(replica: Replica, epoch: int, sender_id: int) -> bool:
    """True if a request's epoch may be taken over; if not, the named voter is asked for its epoch.

    Args:
        replica: This one.
        epoch: Not below ours.
        sender_id: Sender of the request, as it names itself.
    """
    if epoch == replica.epoch:
        return True
    if sender_id == replica.key.id:
        return False  # we sent none: another process has our id, or says so
    if _is_step(replica, epoch):
        return True
    if replica.voters.get(sender_id) is not None:
        replica.doubted.add(sender_id)
    return False


def believes_answer(replica: Replica, epoch: int, sender: Node) -> bool:
    """True if the epoch in an answer of `sender` may be taken over."""
    if epoch == replica.epoch or _is_step(replica, epoch):
        return True
    is_named = sender == replica.node_of(sender.id) or sender in replica.config.bootstrap
    if is_named and epoch <= EPOCH_AFTER_JUMP_MAX:
        return True
    if is_named and sender not in replica.disbelieved:
        replica.disbelieved.add(sender)
        replica.report(
            f"node {sender.id} at {sender.host}:{sender.port} is in epoch {epoch}: from epoch "
            f"{replica.epoch} at most {EPOCH_AFTER_JUMP_MAX} is taken over; its quorum-state is "
            "damaged or forged: format the node as one that lost its disk",
            is_error=True,
        )
    return False


def _is_step(replica: Replica, epoch: int) -> bool:
    return epoch <= min(replica.proven_epoch + EPOCH_STEP_MAX, EPOCH_MAX)


def is_disturbing(replica: Replica, epoch: int, sender_id: int) -> bool:
    """True if a request would end a working leadership in the name of an id outside the voters.

    Without a working leader the request is accepted: a record that this replica lacks may have made
    the sender a voter.
    """
    if epoch <= replica.epoch or replica.voters.get(sender_id) is not None:
        return False
    state = replica.state
    if isinstance(state, Leader):
        return has_majority(replica, state)
    return isinstance(state, Follower) and state.hears_leader(replica.now_ms)


def ask_doubted(replica: Replica) -> None:
    """Ask the voters named in refused requests for their epoch.

    It sends a Fetch of a reader without id, which has no effect on a leader.
    """
    for voter_id in sorted(replica.doubted):
        node = replica.node_of(voter_id)
        if node is None:
            replica.doubted.discard(voter_id)
        elif replica.is_ready(node):
            replica.doubted.discard(voter_id)
            replica.send(
                node,
                FetchRequest(
                    replica=ANY_REPLICA,
                    epoch=replica.epoch,
                    offset=replica.log.end_offset,
                    last_fetched_epoch=replica.log.last_epoch,
                    max_wait_ms=0,
                ),
            )
