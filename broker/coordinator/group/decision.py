"""Input and output of a group coordinator's decisions, as data.

The order in which a decision is carried out is part of the contract:

1. `records` are appended as one batch. If that fails, none is replayed.
2. Each record is replayed (`GroupState.replay`): committed offsets become visible here.
3. `timers` are set and cancelled.
4. When the batch is committed (without records: at once) the `answers` leave. Then `then(None)` is
   called, and its decision is carried out in the same way.
5. If the append or the commit fails, `then(error)` is called and no answer leaves. Without `then`,
   each answer is refused instead (`refusals.refused`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kafka_protocol.errors import ErrorCode, TidemarkError

_MARGIN: Final = 4
_UNBOUNDED: Final = 1 << 62

Ticket = int
"""Identifies a parked request; chosen by the caller, unique for the lifetime of the state."""


class MemoryBudget:
    """Bound on the memory of groups; consulted by each decision that would add to it. Pure.

    Up to the bound everything is allowed. A quarter above it is for existing groups, so that new
    groups cannot stop them. Replacing something by something of the same size is always allowed,
    and so is any removal.

    Attributes:
        most: `tidemark.group.bytes.max`.
        on_refused: Called at a refusal, with True if it was for a new group.
    """

    __slots__ = ("_kept", "most", "on_refused")

    def __init__(
        self,
        kept: Callable[[], int] = lambda: 0,
        most: int = _UNBOUNDED,
        on_refused: Callable[[bool], None] = lambda _is_new: None,
    ) -> None:
        """`kept` returns the memory of all groups now."""
        self._kept, self.most, self.on_refused = kept, most, on_refused

    def left(self, *, is_new: bool) -> int:
        """Bytes that may be added; below 0 if too many are taken.

        Args:
            is_new: For a new group.
        """
        most = self.most if is_new else self.most + self.most // _MARGIN
        return most - self._kept()


class Now(NamedTuple):
    """The two times of a decision.

    Attributes:
        wall_ms: Since the epoch: commit timestamps, expiry of offsets.
        monotonic_ms: Since an arbitrary time: deadlines of sessions and rebalances.
    """

    wall_ms: int
    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a JoinGroup, as DescribeGroups shows it.

    Attributes:
        client_id: From the request's header; empty if it has none.
        client_host: Kafka's form, a slash and the address: `/127.0.0.1`.
    """

    client_id: str
    client_host: str


class GroupRecord(NamedTuple):
    """One record of `__consumer_offsets`; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Answer(NamedTuple):
    """The response for a ticket: an instance of the API's response class, or its slot in it."""

    ticket: Ticket
    response: Any  # Any: response classes are made from schemas, which mypy does not read


class TimerKind(StrEnum):
    """The wait that a timer ends.

    SESSION: for a sign of life of a member, or for a pending member to join. JOIN: for members to
    join (also the initial rebalance delay). SYNC: for members to request their assignment.
    """

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class TimerKey(NamedTuple):
    """Identifies a timer; `member_id` is empty for timers of the whole group."""

    group_id: str
    kind: TimerKind
    member_id: str


class SetTimer(NamedTuple):
    """Call `timer_fired(key)` at `at_ms` (monotonic); replaces an earlier timer of the key."""

    key: TimerKey
    at_ms: int


class CancelTimer(NamedTuple):
    """Cancel the timer of this key, if there is one."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Decision:
    """Effects to carry out, in the order of the module's docstring.

    Attributes:
        records: Appended as one batch, before anything else.
        answers: Sent when the records are committed; at once without records.
        timers: Set at once, in this order.
        then: Makes the next decision after the commit (None) or its failure (the error, mapped by
            `append_error`); only with records.
        may_split: The records may be split into several batches if they are too large for one. A
            failure in between leaves the first ones written, so each prefix of the records must be
            consistent: offsets go before their group.
    """

    records: tuple[GroupRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()
    then: "Callable[[ErrorCode | None, Now], Decision] | None" = None
    may_split: bool = False


NOTHING = Decision()


class DamagedRecord(TidemarkError):
    """A record of `__consumer_offsets` that cannot be read; only its key is lost.

    Attributes:
        offset: Offset of the record.
        key: Its bytes.
    """

    def __init__(self, *, offset: int, key: bytes, cause: str) -> None:
        super().__init__(
            f"the record at offset {offset} of __consumer_offsets cannot be read ({cause}); "
            f"its key {key[:64].hex()} is excluded, all others are loaded"
        )
        self.offset, self.key = offset, key


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(code: ErrorCode) -> ErrorCode:
    """The error for a member when the append to `__consumer_offsets` failed with `code`.

    Clients can handle an unavailable coordinator, but not errors of a partition that they did not
    write to.
    """
    return _APPEND_ERRORS.get(code, code)
