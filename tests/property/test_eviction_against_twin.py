"""The scan-resistant policy against a twin of plain lists, and what it is for, on traces."""

from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rlm.read.eviction_policy import EvictionPolicy, LruPolicy, ScanResistantPolicy

CAPACITY = 100


class Twin:
    """Lists of (key, size), oldest first."""

    def __init__(self) -> None:
        self.unread: list[tuple[int, int]] = []
        self.probation: list[tuple[int, int]] = []
        self.protected: list[tuple[int, int]] = []
        self.ghosts: list[tuple[int, int]] = []
        self.returned: set[int] = set()

    def add(self, key: int, size: int) -> None:
        if key in dict(self.ghosts):
            self.ghosts = [each for each in self.ghosts if each[0] != key]
            self.returned.add(key)
        self.unread.append((key, size))

    def _move(self, source: list[tuple[int, int]], target: list[tuple[int, int]], key: int) -> None:
        found = next(each for each in source if each[0] == key)
        source.remove(found)
        target.append(found)

    def enter(self, key: int) -> None:
        if key in dict(self.protected):
            self._move(self.protected, self.protected, key)
        elif key in dict(self.probation):
            self._move(self.probation, self.protected, key)
        elif key in self.returned:
            self.returned.discard(key)
            self._move(self.unread, self.protected, key)
        else:
            self._move(self.unread, self.probation, key)
        while sum(dict(self.protected).values()) > CAPACITY / 2 and len(self.protected) > 1:
            self._move(self.protected, self.probation, self.protected[0][0])

    def remove(self, key: int) -> None:
        ghost = [each for each in self.probation if each[0] == key]
        for queue in (self.unread, self.probation, self.protected):
            queue[:] = [each for each in queue if each[0] != key]
        self.returned.discard(key)
        self.ghosts += ghost
        while sum(dict(self.ghosts).values()) > CAPACITY:
            self.ghosts.pop(0)

    def victims(self) -> list[int]:
        stale, left = 0, sum(dict(self.unread).values()) - int(CAPACITY / 2)
        while left > 0:
            left -= self.unread[stale][1]
            stale += 1
        order = self.unread[:stale] + self.probation + self.protected + self.unread[stale:]
        return [key for key, _ in order]


@given(st.lists(st.tuples(st.sampled_from("arem"), st.integers(0, 30), st.integers(1, 20))))
def test_the_policy_is_its_naive_twin(steps: list[tuple[str, int, int]]) -> None:
    policy, twin = ScanResistantPolicy[int](CAPACITY), Twin()
    for what, number, size in steps:
        cached = twin.victims()
        if what == "a" and number not in cached:
            policy.add(number, size)
            twin.add(number, size)
        elif what == "e" and cached:
            key = cached[number % len(cached)]
            policy.enter(key)
            twin.enter(key)
        elif what == "r" and cached:
            policy.remove(cached[0])
            twin.remove(cached[0])
        assert list(policy.victims()) == twin.victims()


class Cache:
    """Keys of size 1."""

    def __init__(self, policy: EvictionPolicy[int], capacity: int) -> None:
        self.policy, self.capacity, self.keys = policy, capacity, set[int]()
        self.hits: dict[str, list[bool]] = {}

    def read(self, who: str, key: int) -> None:
        self.hits.setdefault(who, []).append(key in self.keys)
        if key not in self.keys:
            while len(self.keys) >= self.capacity:
                victim = next(iter(self.policy.victims()))
                self.policy.remove(victim)
                self.keys.discard(victim)
            self.keys.add(key)
            self.policy.add(key, 1)
        self.policy.enter(key)


def hot_hits_during_a_scan(make: Callable[[int], EvictionPolicy[int]], per_hot: int) -> float:
    """Three readers share 20 keys; a scan reads `per_hot` new keys for each of their reads."""
    rng, cache = Random(7), Cache(make(64), 64)
    for _ in range(200):
        cache.read("before", rng.randrange(20))
    scanned = 1_000
    for _ in range(2_000):
        cache.read("hot", rng.randrange(20))
        for _ in range(per_hot):
            cache.read("scan", scanned)
            scanned += 1
    return sum(cache.hits["hot"]) / len(cache.hits["hot"])


def test_a_scan_does_not_drive_out_what_several_readers_share() -> None:
    assert hot_hits_during_a_scan(ScanResistantPolicy, per_hot=10) > 0.97
    assert hot_hits_during_a_scan(lambda _: LruPolicy(), per_hot=10) < 0.5


def test_a_shared_set_that_arrives_during_the_scan_is_kept_as_well() -> None:
    cache, rng, scanned = Cache(ScanResistantPolicy(64), 64), Random(3), 1_000
    for at in range(3_000):
        cache.read("scan", scanned)
        scanned += 1
        if at > 1_000:
            cache.read("hot", rng.randrange(20))
    assert sum(cache.hits["hot"][-1_000:]) > 970


def test_what_nobody_came_for_goes_when_it_fills_its_share() -> None:
    policy = ScanResistantPolicy[int](CAPACITY)
    for key in range(-13, 50):
        policy.add(key, 1)
    for key in range(50, 100):
        policy.add(key, 1)
        policy.enter(key)
    order = list(policy.victims())
    assert order[:13] == list(range(-13, 0)), "what is above its share"
    assert order[13:63] == list(range(50, 100))
