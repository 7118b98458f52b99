"""A quorum-state for a voter that lost its own: it gives no vote up to an epoch.

See docs/decisions/a-lost-quorum-state.md.
"""

from typing import Final

from kafka_protocol.errors import TidemarkError
from metadata_topic.raft.events import EPOCH_MAX, ElectionState
from metadata_topic.raft.voters import ReplicaKey

ABSTAINED: Final = ReplicaKey(2**31 - 1, b"\xff" * 16)
"""Whom such a file says it voted for: a node that does not exist."""


class AbstentionError(TidemarkError):
    """No such file is written; nothing was changed."""


def abstain_until(epoch: int, last_epoch: int) -> ElectionState:
    """The election state in which the vote of `epoch` is spent.

    Args:
        epoch: the highest that any other controller knows.
        last_epoch: the highest in this node's log and snapshots.

    Raises:
        AbstentionError: not an epoch that can be the highest.
    """
    if not last_epoch <= epoch <= EPOCH_MAX:
        raise AbstentionError(
            f"--epoch={epoch}: must be at least {last_epoch}, the last epoch in this node's log, "
            f"and at most {EPOCH_MAX}; it is the highest epoch that any other controller knows"
        )
    return ElectionState(epoch, None, ABSTAINED)
