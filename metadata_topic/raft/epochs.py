"""Which epochs of others a replica takes over: the one rule for every request and every answer.

An epoch never falls again, and 2^31-1 elections are all that its int32 has. So one frame with a
made-up epoch could use them up: no election would ever be possible again.

DIFFERS: Kafka takes over any epoch, from anybody.
"""

from typing import Final

EPOCH_MAX: Final = 2**31 - 2
"""The last epoch that is proposed, taken over or persisted (inclusive)."""
JUMP_MAX: Final = 1000
"""How far above ours an epoch may be (inclusive) that was said by somebody who asks us."""
JUMP_END_MAX: Final = EPOCH_MAX - 2**20
"""Where a longer jump may end (inclusive): a million elections are left after it."""


def is_believable(theirs: int, ours: int, *, from_known_address: bool) -> bool:
    """Whether a replica takes over epoch `theirs` where it is above its own.

    Args:
        theirs: the epoch that was said.
        ours: this replica's.
        from_known_address: it was said in an answer, on a connection that this replica opened to an
            address of the voter set or of its settings. A request can name any voter.
    """
    if theirs - ours <= JUMP_MAX:
        return theirs <= EPOCH_MAX
    return from_known_address and theirs <= JUMP_END_MAX
