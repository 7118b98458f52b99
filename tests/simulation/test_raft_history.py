"""The search for an order in one name's history: known verdicts, and a naive twin."""

from collections.abc import Sequence
from random import Random

import pytest

from tests.support.quorum_world import history
from tests.support.quorum_world.history import NEVER, Call, Kind, Said, after, is_linearizable

ONE, TWO = b"1" * 16, b"2" * 16


def call_of(
    number: int, kind: Kind, said: Said, topic: bytes | None, asked: int, until: int | None
) -> Call:
    return Call(number, kind, "t", asked, topic, said, until)


def verdict(*calls: tuple[Kind, Said, bytes | None, int, int | None]) -> bool | None:
    numbered: Sequence[Call] = [call_of(n, *one) for n, one in enumerate(calls)]
    return is_linearizable(numbered)


def test_what_overlaps_may_come_in_either_order() -> None:
    assert verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.DELETE, Said.REFUSED, None, 5, 12),
    )
    assert verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.DELETE, Said.DONE, ONE, 5, 12),
    )


def test_what_was_answered_before_comes_before() -> None:
    assert not verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.DELETE, Said.REFUSED, None, 11, 12),
    )
    assert not verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.CREATE, Said.DONE, TWO, 11, 12),
    )


def test_what_was_not_answered_may_take_effect_late_or_never() -> None:
    assert verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.DELETE, Said.UNKNOWN, None, 11, None),
        (Kind.DESCRIBE, Said.DONE, ONE, 12, 13),
        (Kind.CREATE, Said.DONE, TWO, 14, 15),
    )
    assert verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.DELETE, Said.UNKNOWN, None, 11, None),
        (Kind.DESCRIBE, Said.DONE, ONE, 12, 13),
    )


def test_it_takes_effect_once() -> None:
    assert not verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.DELETE, Said.UNKNOWN, None, 11, None),
        (Kind.CREATE, Said.DONE, TWO, 14, 15),
        (Kind.DESCRIBE, Said.DONE, None, 16, 17),
    )


def test_the_topic_that_is_found_is_the_one_that_is_there() -> None:
    assert not verdict(
        (Kind.CREATE, Said.DONE, ONE, 0, 10),
        (Kind.DELETE, Said.DONE, ONE, 11, 12),
        (Kind.CREATE, Said.DONE, TWO, 14, 15),
        (Kind.DESCRIBE, Said.DONE, ONE, 16, 17),
    )


def test_many_unanswered_calls_need_no_search_when_the_order_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "POLLS_MAX", 400_000)
    ids = [bytes([number]) * 16 for number in range(10, 50)]
    calls = [call_of(n, Kind.CREATE, Said.UNKNOWN, one, n, None) for n, one in enumerate(ids)]
    calls += [call_of(n, Kind.DELETE, Said.UNKNOWN, None, n, None) for n in range(100, 150)]
    begun = len(calls)
    for number in range(1000):
        topic, at = number.to_bytes(16, "big"), 200 + 10 * number
        calls.append(call_of(begun + 2 * number, Kind.CREATE, Said.DONE, topic, at, at + 3))
        calls.append(call_of(begun + 2 * number + 1, Kind.DELETE, Said.DONE, topic, at, at + 8))
    ids += [number.to_bytes(16, "big") for number in range(1000)]
    assert is_linearizable(calls, ids) is True
    calls.append(call_of(200, Kind.DESCRIBE, Said.DONE, TWO, 199, 301))
    assert is_linearizable(calls, ids) is None, "too many orders to try them all"


def tried_out(calls: Sequence[Call]) -> bool:
    """The verdict after trying whatever may be next, each time."""
    seen: set[tuple[frozenset[Call], bytes | None]] = set()
    stack: list[tuple[frozenset[Call], bytes | None]] = [(frozenset(calls), None)]
    while stack:
        left, state = stack.pop()
        must = [one for one in left if one.said is not Said.UNKNOWN or one.kind is Kind.CREATE]
        if not must:
            return True
        if (left, state) in seen:
            continue
        seen.add((left, state))
        first_end = min(NEVER if one.answered_us is None else one.answered_us for one in must)
        for call in left:
            fits, then = after(call, state)
            if fits and call.asked_us <= first_end:
                stack.append((left - {call}, then))
    return False


def drawn(rng: Random) -> list[Call]:
    """A short history, mostly an impossible one."""
    calls = []
    for number in range(rng.randrange(1, 9)):
        asked = rng.randrange(12)
        kind = rng.choice(list(Kind))
        said = rng.choice((Said.DONE, Said.DONE, Said.REFUSED, Said.UNKNOWN))
        if kind is Kind.DESCRIBE or (kind is Kind.ALTER and said is Said.UNKNOWN):
            said = Said.DONE
        topic = bytes([number]) * 16 if kind is Kind.CREATE else None
        until = None if said is Said.UNKNOWN else asked + rng.randrange(1, 8)
        calls.append(call_of(number, kind, said, topic, asked, until))
    ids = [call.topic_id for call in calls if call.kind is Kind.CREATE]
    for call in calls:
        if call.kind is Kind.DELETE and call.said is Said.DONE:
            call.topic_id = rng.choice(ids or [TWO])
        elif call.kind is Kind.DESCRIBE:
            call.topic_id = rng.choice([None, *ids])
    return calls


@pytest.mark.parametrize("seed", range(4))
def test_the_search_says_what_trying_everything_says(seed: int) -> None:
    rng = Random(f"histories-{seed}")
    verdicts = []
    for _ in range(800):
        calls = drawn(rng)
        committed = [call.topic_id for call in calls if call.kind is Kind.CREATE and call.topic_id]
        rng.shuffle(committed)
        verdicts.append(tried_out(calls))
        told = "\n".join(map(str, calls))
        assert is_linearizable(calls, committed) is verdicts[-1], told
    assert 100 < sum(verdicts) < 700
