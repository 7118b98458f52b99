"""What goes into a decision of the group coordinator, and what comes out of it, as data.

The order in which a decision is carried out is part of the contract:

1. `records` are appended as one batch; when that fails, nothing of them is replayed.
2. Each record is replayed (`GroupState.replay`): committed offsets become visible here.
3. `timers` are set and cancelled.
4. When the batch is committed (without records: at once) the `answers` leave, then `then(None)` is
   called, and its decision is carried out in the same way.
5. When the append or the commit fails, `then(error)` comes in place of the answers. A decision
   without `then` has each answer refused instead (`refusals.refused`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kafka_protocol.errors import ErrorCode, TidemarkError

_MARGIN: Final = 4
_UNBOUNDED: Final = 1 << 62

Ticket = int
"""Names one parked request; given by the caller, unique for the lifetime of the state."""


class MemoryBudget:
    """Asked by each decision that would keep more.

    Up to the bound everything is taken. A quarter above it is for groups that are there, so
    that new ones cannot stop them; beyond that they may not grow either. What replaces
    something of the same size always passes, and so does what ends something. Pure.

    Attributes:
        most: `tidemark.group.bytes.max`.
        on_refused: told that something was refused for lack of memory, and whether it was of a
            group that is not there yet.
    """

    __slots__ = ("_kept", "most", "on_refused")

    def __init__(
        self,
        kept: Callable[[], int] = lambda: 0,
        most: int = _UNBOUNDED,
        on_refused: Callable[[bool], None] = lambda _is_new: None,
    ) -> None:
        """Begin with a bound; `kept` says what all groups take now."""
        self._kept, self.most, self.on_refused = kept, most, on_refused

    def left(self, *, is_new: bool) -> int:
        """How many bytes are left, below 0 where too many are taken.

        Args:
            is_new: for a group that is not there yet.
        """
        most = self.most if is_new else self.most + self.most // _MARGIN
        return most - self._kept()


class Now(NamedTuple):
    """The two times of a decision.

    Attributes:
        wall_ms: since the epoch: commit timestamps, expiry of offsets.
        monotonic_ms: since anything: deadlines of sessions and rebalances.
    """

    wall_ms: int
    monotonic_ms: int


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a JoinGroup, as DescribeGroups shows it.

    Attributes:
        client_id: of the request's header, empty where it had none.
        client_host: Kafka's form, a slash and the address: `/127.0.0.1`.
    """

    client_id: str
    client_host: str


class GroupRecord(NamedTuple):
    """One record of `__consumer_offsets`; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Answer(NamedTuple):
    """The response of a ticket: an instance of the API's response class, or its slot in it."""

    ticket: Ticket
    response: Any  # classes of responses follow from schemas, which mypy does not read


class TimerKind(StrEnum):
    """What a timer ends.

    SESSION: the time in which a member must be heard of, or a pending member must join.
    JOIN: the wait for members to join (also the initial rebalance delay).
    SYNC: the wait for members to ask for their assignment.
    """

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class TimerKey(NamedTuple):
    """Names a timer; `member_id` is empty for those of the whole group."""

    group_id: str
    kind: TimerKind
    member_id: str


class SetTimer(NamedTuple):
    """Call `timer_fired(key)` at `at_ms` (monotonic); replaces an earlier timer of the key."""

    key: TimerKey
    at_ms: int


class CancelTimer(NamedTuple):
    """The timer of this key need not fire; there may be none."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done. The order is that of the module's docstring.

    Attributes:
        records: appended as one batch, before anything else.
        answers: leave when the records are committed; at once where there are none.
        timers: set at once, in this order.
        then: what follows from the commit (None) or from its failure (the error, mapped by
            `append_error`); only beside records.
        may_split: the records may be several batches where one would be too large. A failure in
            between leaves the first of them written, so each beginning of the records must make
            sense: offsets go before their group.
    """

    records: tuple[GroupRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()
    then: "Callable[[ErrorCode | None, Now], Decision] | None" = None
    may_split: bool = False


NOTHING = Decision()


class DamagedRecord(TidemarkError):
    """A record of `__consumer_offsets` that cannot be read. It costs its key, never the partition.

    Attributes:
        offset: of the record.
        key: its bytes.
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
    """Say what a member is told when the append to `__consumer_offsets` failed with `code`.

    Clients know what to do about a coordinator that is away, not about a partition that they did
    not write to.
    """
    return _APPEND_ERRORS.get(code, code)
