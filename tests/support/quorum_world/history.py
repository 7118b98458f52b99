"""Whether what clients were told of one topic name can have happened one call after the other.

The search of Wing and Gong with memory (as in Porcupine): each call takes effect at one moment
between its sending and its answer. A call without an answer may take effect at any later time; that
it did is known where its topic was committed.

Of what may come next most need not be tried:

1. A call that changes nothing and fits comes at once: it stands in nobody's way later.
2. A topic that is there ends by one call: the deletion that was told its id; where there is none,
   the first deletion without an answer, since each of those may come now or at any later time.
3. So only the creations are tried one after the other, those that were committed first before the
   others: if the log's order is one, it is found without a second try.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

POLLS_MAX = 3_000_000
"""At calls: some seconds; only where the log's order is none."""
NEVER = 1 << 62


class Kind(Enum):
    """What a client asks for."""

    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"


class Said(Enum):
    """What it was told."""

    DONE = "done"
    REFUSED = "refused"
    """The topic is there already, or is not there."""
    NOTHING = "nothing"
    """It was not tried; nothing follows from it."""
    UNKNOWN = "unknown"


@dataclass(eq=False, slots=True)
class Call:
    """One request of a client.

    Attributes:
        topic_id: that is made or was found; None for none.
        partitions: how many it would make, as it was decided last.
        by_deposed: a controller answered in whose epoch another was elected already.
        answered_us: when it was told; None: never.
    """

    number: int
    kind: Kind
    name: str
    asked_us: int
    topic_id: bytes | None = None
    said: Said = Said.UNKNOWN
    answered_us: int | None = None
    by_deposed: bool = False
    partitions: int = -1

    def __str__(self) -> str:
        topic = "-" if self.topic_id is None else self.topic_id.hex()[-6:]
        until = "" if self.answered_us is None else self.answered_us // 1000
        return (
            f"{self.number} {self.kind.value} {self.name} {topic}: {self.said.value} "
            f"[{self.asked_us // 1000}, {until}]"
        )


def after(call: Call, state: bytes | None) -> tuple[bool, bytes | None]:
    """Whether a call fits a state of the name (the topic's id, None: none), and the state after."""
    is_there = state is not None
    match call.kind, call.said:
        case Kind.CREATE, Said.REFUSED:
            return is_there, state
        case Kind.CREATE, _:
            return not is_there, call.topic_id
        case Kind.DELETE, Said.REFUSED:
            return not is_there, state
        case Kind.DELETE, Said.DONE:
            return state == call.topic_id, None
        case Kind.DELETE, _:
            return is_there, None
        case Kind.ALTER, Said.DONE:
            return is_there, state
        case Kind.ALTER, _:
            return not is_there, state
        case _:
            return state == call.topic_id, state


def changes(call: Call) -> bool:
    """Whether a call that fits leaves another state behind."""
    if call.kind is Kind.CREATE:
        return call.said is not Said.REFUSED
    return call.kind is Kind.DELETE and call.said is not Said.REFUSED


def is_linearizable(calls: Sequence[Call], committed: Sequence[bytes] = ()) -> bool | None:
    """Whether there is an order; None: not the one given, and no other was found in time.

    Args:
        calls: of one name; those that are UNKNOWN took effect (CREATE) or may have (DELETE).
        committed: ids in the order in which they were; tried first, and never believed.
    """
    return _Search(calls, committed).verdict()


class _Search:
    """The search; the set of calls that are done is a number, a bit a call."""

    def __init__(self, calls: Sequence[Call], committed: Sequence[bytes]) -> None:
        self._calls = sorted(calls, key=lambda call: (call.asked_us, call.number))
        self._all = (1 << len(self._calls)) - 1
        self._must = sum(
            1 << place
            for place, call in enumerate(self._calls)
            if call.said is not Said.UNKNOWN or call.kind is Kind.CREATE
        )
        self._ends = [NEVER if one.answered_us is None else one.answered_us for one in self._calls]
        self._removed = {
            one.topic_id for one in calls if one.kind is Kind.DELETE and one.said is Said.DONE
        }
        self._ranks = {topic_id: rank for rank, topic_id in enumerate(committed)}
        self._looks = 0

    def verdict(self) -> bool | None:
        """Search; see `is_linearizable`."""
        seen: set[tuple[int, bytes | None]] = set()
        stack: list[tuple[int, bytes | None]] = [(0, None)]
        while stack:
            done, state = self._with_what_fits(*stack.pop())
            if done & self._must == self._must:
                return True
            if (done, state) in seen:
                continue
            seen.add((done, state))
            if self._looks > POLLS_MAX:
                return None
            stack += [(done | 1 << place, then) for place, then in self._changes(done, state)]
        return False

    def _possible(self, done: int) -> list[int]:
        """Places of the calls that may be next: none that is left ended before they were asked."""
        first_end, places = NEVER, []
        left = self._all & ~done
        while left:
            bit = left & -left
            place = bit.bit_length() - 1
            if self._calls[place].asked_us > first_end:
                break  # what is asked still later ends still later
            self._looks += 1
            places.append(place)
            if bit & self._must:
                first_end = min(first_end, self._ends[place])
            left ^= bit
        return [place for place in places if self._calls[place].asked_us <= first_end]

    def _with_what_fits(self, done: int, state: bytes | None) -> tuple[int, bytes | None]:
        """The same state after all calls that change nothing and fit."""
        while True:
            before = done
            for place in self._possible(done):
                call = self._calls[place]
                if not changes(call) and after(call, state)[0]:
                    done |= 1 << place
            if done == before:
                return done, state

    def _changes(self, done: int, state: bytes | None) -> list[tuple[int, bytes | None]]:
        """What may change a state next, the likeliest last."""
        found = [
            (place, self._calls[place])
            for place in self._possible(done)
            if changes(self._calls[place]) and after(self._calls[place], state)[0]
        ]
        if state is not None:
            is_told = state in self._removed
            return [(place, None) for place, call in found if (call.said is Said.DONE) == is_told][
                :1
            ]
        found.sort(key=lambda one: self._ranks.get(one[1].topic_id or b"", NEVER), reverse=True)
        return [(place, call.topic_id) for place, call in found]
