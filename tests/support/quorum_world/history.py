"""Whether what clients were told of one topic name can have happened one call after the other.

The search of Wing and Gong with memory (as in Porcupine): each call takes effect at one moment
between its sending and its answer. A call without an answer may take effect at any later time; that
it did is known where its topic was committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

LOOKS_MAX = 3_000_000
"""At calls, so that a history of many calls takes some seconds at most."""


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


def is_linearizable(calls: Sequence[Call]) -> bool | None:
    """Whether there is an order; None if it was not found out within `LOOKS_MAX` looks.

    Args:
        calls: of one name; those that are UNKNOWN took effect (CREATE) or may have (DELETE).
    """
    ordered = sorted(calls, key=lambda call: (call.asked_us, call.number))
    must = [call.said is not Said.UNKNOWN or call.kind is Kind.CREATE for call in ordered]
    never = 1 << 62
    ends = [never if call.answered_us is None else call.answered_us for call in ordered]
    all_of_them = sum(1 << place for place, needed in enumerate(must) if needed)
    seen: set[tuple[int, bytes | None]] = set()
    stack: list[tuple[int, bytes | None]] = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done & all_of_them == all_of_them:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) * len(ordered) > LOOKS_MAX:
            return None
        left = (end for place, end in enumerate(ends) if must[place] and not done >> place & 1)
        first_end = min(left, default=never)
        for place, call in enumerate(ordered):
            if call.asked_us > first_end:
                break
            if done >> place & 1:
                continue
            fits, then = after(call, state)
            if fits:
                stack.append((done | 1 << place, then))
    return False
