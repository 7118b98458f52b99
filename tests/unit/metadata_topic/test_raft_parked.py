"""Fetches that wait at a leader: found without walking through all of them."""

from random import Random

from metadata_topic.raft.messages import FetchRequest
from metadata_topic.raft.parked import Parked, ParkedFetches
from metadata_topic.raft.voters import ReplicaKey


def parked(token: int, replica: int, deadline_ms: int) -> Parked:
    request = FetchRequest(ReplicaKey(replica, bytes(16)), 1, 5, 1, 5, 500, 1_000)
    return Parked(token, request, deadline_ms)


def tokens(them: list[Parked]) -> list[int]:
    return [one.token for one in them]


def test_as_the_plain_list_that_it_stands_for() -> None:
    random, them, plain = Random(5), ParkedFetches(), list[Parked]()
    now_ms = 0
    for token in range(3_000):
        now_ms += random.randrange(3)
        one = parked(token, random.randrange(-1, 40), now_ms + random.randrange(1, 200))
        key = one.request.replica
        older = [p for p in plain if p.request.replica == key and key.id >= 0]
        known = them.take_of(key)
        assert ([] if known is None else [known]) == older
        plain = [p for p in plain if p not in older]
        them.add(one)
        plain.append(one)
        due = sorted((p for p in plain if p.deadline_ms <= now_ms), key=lambda p: p.token)
        assert sorted(tokens(them.take_due(now_ms))) == tokens(due)
        plain = [p for p in plain if p not in due]
        if token % 50 == 0:
            wanted = [p for p in plain if p.token % 3]
            ordered = sorted(wanted, key=lambda p: p.request.replica.id not in {1, 2})
            assert them.take(lambda p: p.token % 3 > 0, first={1, 2}) == ordered
            plain = [p for p in plain if p.token % 3 == 0]
        assert list(them.every()) == plain
        assert len(them) == len(plain)
        assert them.next_deadline_ms() == min((p.deadline_ms for p in plain), default=None)


def test_a_replica_that_asks_again_and_again_leaves_nothing_behind() -> None:
    them = ParkedFetches()
    sizes = []
    for token in range(10_000):
        them.take_of(ReplicaKey(7, bytes(16)))
        them.add(parked(token, 7, 1_000_000))
        sizes.append(len(them._deadlines))
    assert len(them) == 1
    assert max(sizes) < 100


def test_the_voters_are_answered_before_the_observers() -> None:
    them = ParkedFetches()
    for token, replica in enumerate((101, 102, 2, 103, 3)):
        them.add(parked(token, replica, 100))
    assert tokens(them.take(lambda _: True, first={2, 3})) == [2, 4, 0, 1, 3]
