"""Sizes and deadlines of reading: one value for all that reads a split."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much is read at once, and how long is waited for it.

    Attributes:
        group_bytes: stored bytes that are read and decoded at once; two such buffers are held, and
            a larger batch gets larger ones. Four times as much is no faster.
        call_bytes: most that one call of a stream is asked for: between two calls a reader that is
            closed ends.
        retry_s: a store or a broker that fails for now is asked again, for so long since the last
            byte that came. Above what one call of a plugin may take (S3: 60 s).
        silence_s: so long without a byte, retries or none, and the store counts as unreachable.
        tail_bytes: most that one answer of a broker should hold.
    """

    group_bytes: int = 8 << 20
    call_bytes: int = 4 << 20
    retry_s: float = 120.0
    silence_s: float = 300.0
    tail_bytes: int = 50 << 20
