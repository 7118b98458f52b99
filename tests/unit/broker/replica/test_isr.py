"""What a leader knows of its followers, against the rules and against a naive twin."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replica.isr import InSyncReplicas, Lack, Proposal, ReplicaChange

LAG_MS = 100
LIVES = {1: 10, 2: 20, 3: 30}


def leading(
    isr: Iterable[int] = (1, 2, 3),
    *,
    start: int = 0,
    min_isr: int = 2,
    is_recovering: bool = False,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> InSyncReplicas:
    """Broker 1 leads since time 0."""
    return InSyncReplicas(
        node_id=1,
        partition_epoch=5,
        replicas=replicas,
        isr=tuple(isr),
        epoch_start_offset=start,
        led_since_ms=0,
        min_insync_replicas=min_isr,
        own_broker_epoch=LIVES[1],
        is_recovering=is_recovering,
    )


def is_eligible(replica: int, broker_epoch: int) -> bool:
    return LIVES[replica] == broker_epoch


def fetch(
    held: InSyncReplicas,
    replica: int,
    offset: int,
    *,
    end: int = 100,
    at_ms: int = 0,
    life: int | None = None,
    log_start: int = 0,
) -> bool:
    return held.fetch(
        replica,
        broker_epoch=LIVES[replica] if life is None else life,
        offset=offset,
        log_start_offset=log_start,
        leader_end=end,
        now_ms=at_ms,
    )


def watermark(
    held: InSyncReplicas, now: int = 0, *, end: int = 100, own: int = 100, since_ms: int = 10**9
) -> int:
    return held.high_watermark(
        now, own_end=own, leader_end=end, since_ms=since_ms, is_eligible=is_eligible
    )


def join(
    held: InSyncReplicas, replica: int, *, mark: int = 0, log_start: int = 0
) -> Proposal | None:
    return held.to_join(
        replica, high_watermark=mark, log_start_offset=log_start, is_eligible=is_eligible
    )


def leave(
    held: InSyncReplicas, *, now_ms: int, end: int = 100, begun_ms: int = 0
) -> Proposal | None:
    return held.to_leave(leader_end=end, now_ms=now_ms, lag_ms_max=LAG_MS, clocks_begun_ms=begun_ms)


def committed(held: InSyncReplicas, isr: Iterable[int], epoch: int = 6) -> bool:
    return held.learn(
        partition_epoch=epoch, replicas=held.replicas, isr=tuple(isr), is_recovering=False
    )


# -- the high watermark -----------------------------------------------------------------------


def test_watermark_is_the_lowest_end_of_the_isr() -> None:
    held = leading()
    fetch(held, 2, 80)
    fetch(held, 3, 60)
    assert watermark(held) == 60


def test_own_end_bounds_the_watermark() -> None:
    held = leading()
    fetch(held, 2, 100)
    fetch(held, 3, 100)
    assert watermark(held, own=40) == 40


def test_watermark_never_goes_back() -> None:
    held = leading()
    fetch(held, 2, 10)
    fetch(held, 3, 10)
    assert watermark(held, 70) == 70


def test_member_that_never_fetched_holds_the_watermark() -> None:
    held = leading()
    fetch(held, 2, 100)
    assert watermark(held, 5) == 5


def test_follower_outside_the_isr_does_not_count() -> None:
    held = leading((1, 2))
    fetch(held, 2, 90)
    fetch(held, 3, 10)
    assert watermark(held) == 90


def test_follower_outside_that_keeps_pace_is_waited_for() -> None:
    held = leading((1, 2))
    fetch(held, 2, 100)
    fetch(held, 3, 90, end=90, at_ms=50)
    assert watermark(held, since_ms=50) == 90
    assert watermark(held, since_ms=51) == 100


def test_follower_that_may_not_join_is_not_waited_for() -> None:
    held = leading((1, 2))
    fetch(held, 2, 100)
    fetch(held, 3, 90, end=90, at_ms=50, life=29)
    assert watermark(held, since_ms=50) == 100


def test_watermark_stands_still_below_min_isr() -> None:
    held = leading((1,))
    assert watermark(held, 30) == 30
    committed(held, (1, 2))
    fetch(held, 2, 100)
    assert watermark(held, 30) == 100


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    held = leading((1,), min_isr=2, replicas=(1,))
    assert not held.is_under_min_isr
    assert watermark(held) == 100


def test_proposed_member_does_not_lift_the_isr_over_min_isr() -> None:
    held = leading((1,))
    fetch(held, 2, 100)
    assert join(held, 2) is not None
    assert held.is_under_min_isr
    assert watermark(held, 30) == 30


@pytest.mark.parametrize("is_open", [False, True])
def test_watermark_stands_still_while_fewer_than_min_isr_are_asked_for(is_open: bool) -> None:
    held = leading((1, 2))
    fetch(held, 2, 50)
    assert leave(held, now_ms=500) is not None
    if is_open:
        held.still_undecided()
        held.refused()
    fetch(held, 2, 100)
    assert watermark(held, 30) == 30
    committed(held, (1, 2))
    assert watermark(held, 30) == 100


def test_joining_follower_counts_from_the_question_on() -> None:
    held = leading((1, 2))
    fetch(held, 2, 100)
    fetch(held, 3, 50)
    assert join(held, 3) is not None
    assert held.maximal_isr == {1, 2, 3}
    assert watermark(held) == 50


def test_leaving_follower_counts_until_the_answer() -> None:
    held = leading()
    fetch(held, 2, 100, at_ms=500)
    fetch(held, 3, 50)
    asked = leave(held, now_ms=500)
    assert asked is not None
    assert asked.members == (1, 2)
    assert watermark(held) == 50
    committed(held, (1, 2))
    assert watermark(held) == 100


def test_refused_proposal_counts_no_more() -> None:
    held = leading((1, 2))
    fetch(held, 2, 100)
    fetch(held, 3, 50)
    join(held, 3)
    held.refused()
    assert watermark(held) == 100


def test_proposal_of_unknown_outcome_counts_though_refused_later() -> None:
    held = leading((1, 2))
    fetch(held, 2, 100)
    fetch(held, 3, 50)
    join(held, 3)
    held.still_undecided()
    held.refused()
    assert watermark(held) == 50
    committed(held, (1, 2))
    assert watermark(held) == 100


def test_nothing_asked_leaves_nothing_open() -> None:
    held = leading((1, 2))
    held.still_undecided()
    assert held.maximal_isr == {1, 2}


# -- what the metadata say --------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [4, 5])
def test_state_that_is_not_newer_changes_nothing(epoch: int) -> None:
    held = leading()
    assert not committed(held, (1,), epoch)
    assert (held.partition_epoch, held.isr) == (5, (1, 2, 3))


def test_newer_state_ends_the_proposal_before_it() -> None:
    held = leading((1, 2))
    fetch(held, 3, 50)
    join(held, 3)
    assert committed(held, (1, 2))
    assert held.proposal is None
    assert join(held, 3) is not None


def test_added_replica_is_unknown_and_others_are_kept() -> None:
    held = leading((1, 2), replicas=(1, 2))
    fetch(held, 2, 70)
    held.learn(partition_epoch=6, replicas=(3, 1, 2), isr=(1, 2), is_recovering=False)
    assert held.followers[2].log_end_offset == 70
    assert held.followers[3].log_end_offset == -1
    held.learn(partition_epoch=7, replicas=(1, 3), isr=(1,), is_recovering=False)
    assert set(held.followers) == {3}


# -- what followers say -----------------------------------------------------------------------


def test_fetch_says_whether_the_watermark_may_move() -> None:
    held = leading()
    assert fetch(held, 2, 10)
    assert not fetch(held, 2, 10)
    assert fetch(held, 2, 11)


@pytest.mark.parametrize(("offset", "life"), [(60, 21), (59, 20)])
def test_other_life_or_lower_offset_replaces_what_was_known(offset: int, life: int) -> None:
    held = leading()
    fetch(held, 3, 100, at_ms=500)
    fetch(held, 2, 60, end=60, at_ms=500)
    fetch(held, 2, offset, life=life, at_ms=550)
    follower = held.followers[2]
    assert (follower.broker_epoch, follower.log_end_offset) == (life, offset)
    # It is not in sync by what was there before.
    asked = leave(held, now_ms=551)
    assert asked is not None
    assert asked.members == (1, 3)


def test_fetch_of_an_ended_life_is_recognised() -> None:
    held = leading()
    fetch(held, 2, 60, life=20)
    assert held.is_of_ended_incarnation(2, 19)
    assert not held.is_of_ended_incarnation(2, 20)
    assert not held.is_of_ended_incarnation(2, 21)
    assert not held.is_of_ended_incarnation(2, -1)


# -- who leaves -------------------------------------------------------------------------------


def test_member_leaves_once_it_was_behind_for_longer_than_allowed() -> None:
    held = leading()
    fetch(held, 2, 100, at_ms=900)
    fetch(held, 3, 90, end=90, at_ms=400)
    assert leave(held, now_ms=500) is None
    asked = leave(held, now_ms=501)
    assert asked is not None
    assert asked.isr == ((1, 10), (2, 20))
    assert asked.partition_epoch == 5


def test_member_at_the_log_end_stays_however_long_it_is_silent() -> None:
    held = leading()
    fetch(held, 2, 100)
    fetch(held, 3, 100)
    assert leave(held, now_ms=10**6) is None


def test_member_stays_that_has_what_the_leader_had_at_its_last_fetch() -> None:
    held = leading((1, 2))
    fetch(held, 2, 10, end=50, at_ms=400)
    fetch(held, 2, 50, end=90, at_ms=480)  # so it was caught up at 400
    assert leave(held, now_ms=500) is None
    assert leave(held, now_ms=501) is not None


def test_silent_member_leaves_a_new_leadership_only_after_the_lag() -> None:
    held = leading()
    held.led_since_ms = 600
    assert leave(held, now_ms=600 + LAG_MS) is None
    asked = leave(held, now_ms=601 + LAG_MS)
    assert asked is not None
    assert asked.members == (1,)


def test_no_member_leaves_within_the_lag_after_a_pause_of_the_leader() -> None:
    held = leading()
    assert leave(held, now_ms=700, begun_ms=600) is None
    assert leave(held, now_ms=701, begun_ms=600) is not None


def test_member_that_is_no_replica_leaves() -> None:
    held = leading((1, 2, 3), replicas=(1, 2))
    fetch(held, 2, 100)
    asked = leave(held, now_ms=500)
    assert asked is not None
    assert asked.members == (1, 2)


def test_nobody_leaves_beside_an_open_proposal() -> None:
    held = leading((1, 2))
    fetch(held, 3, 100)
    join(held, 3)
    assert leave(held, now_ms=10**6) is None


# -- who joins --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "start", "offset"), [(40, 0, 39), (0, 40, 39), (40, 30, 39), (30, 40, 39)]
)
def test_follower_below_watermark_or_epoch_start_does_not_join(
    mark: int, start: int, offset: int
) -> None:
    held = leading((1, 2), start=start)
    fetch(held, 3, offset)
    assert join(held, 3, mark=mark) is None
    fetch(held, 3, offset + 1)
    assert join(held, 3, mark=mark) == Proposal(((1, 10), (2, -1), (3, 30)), True, 5)


def test_follower_without_the_leaders_log_start_does_not_join() -> None:
    held = leading((1, 2))
    fetch(held, 3, 100, log_start=19)
    assert join(held, 3, log_start=20) is None
    fetch(held, 3, 100, log_start=20)
    assert join(held, 3, log_start=20) is not None


def test_follower_that_never_fetched_does_not_join() -> None:
    assert join(leading((1, 2)), 3) is None


def test_member_does_not_join_again() -> None:
    held = leading()
    fetch(held, 3, 100)
    assert join(held, 3) is None


def test_ineligible_follower_does_not_join() -> None:
    held = leading((1, 2))
    fetch(held, 3, 100, life=29)
    assert join(held, 3) is None


def test_nobody_joins_beside_an_open_proposal() -> None:
    held = leading((1,))
    fetch(held, 2, 100)
    fetch(held, 3, 100)
    assert join(held, 2) is not None
    assert join(held, 3) is None


def test_follower_that_joined_behind_the_end_does_not_leave_at_once() -> None:
    held = leading((1, 2))
    fetch(held, 2, 100, at_ms=500)
    fetch(held, 3, 90, at_ms=500)
    assert join(held, 3, mark=80) is not None
    committed(held, (1, 2, 3))
    assert leave(held, now_ms=500 + LAG_MS) is None
    fetch(held, 2, 100, at_ms=501 + LAG_MS)
    asked = leave(held, now_ms=501 + LAG_MS)
    assert asked is not None
    assert asked.members == (1, 2)


# -- recovery and flushing --------------------------------------------------------------------


def test_recovering_leader_asks_as_recovered() -> None:
    held = leading((1,), is_recovering=True)
    assert held.to_recover() == Proposal(((1, 10),), True, 5)
    assert held.to_recover() is None
    committed(held, (1,))
    assert held.to_recover() is None


def test_first_follower_of_a_recovering_leader_joins_as_recovered() -> None:
    held = leading((1,), is_recovering=True)
    fetch(held, 2, 100)
    asked = join(held, 2)
    assert asked is not None
    assert asked.is_recovered


@pytest.mark.parametrize(
    ("min_isr", "replicas", "members", "flushes"),
    [(2, 3, 1, True), (2, 3, 2, False), (1, 3, 1, False), (3, 2, 1, True), (3, 2, 2, False)],
)
def test_leader_flushes_below_min_isr(
    min_isr: int, replicas: int, members: int, flushes: bool
) -> None:
    held = leading((1, 2), min_isr=min_isr, replicas=tuple(range(1, replicas + 1)))
    assert held.must_flush(members) is flushes


# -- against a naive twin ---------------------------------------------------------------------

FETCHES = st.tuples(
    st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 5), st.sampled_from([0, 1])
)
ASKING = st.sampled_from([("join", 2), ("join", 3), ("leave",), ("refused",), ("still_undecided",)])
LEARNING = st.tuples(st.just("learn"), st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)]))
EVENTS = st.lists(
    st.one_of(FETCHES, ASKING, LEARNING, st.just(("append",)), st.just(("wait",))), max_size=30
)


class Twin:
    """Everything that was ever heard, looked through again each time."""

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.heard: dict[int, list[tuple[int, int, int, int]]] = {2: [], 3: []}
        self.isr: set[int] = {1, 2, 3}
        self.asked: set[int] | None = None
        self.open: list[set[int]] = []
        self.joined: dict[int, int] = {}

    def since_replaced(self, replica: int) -> list[tuple[int, int, int, int]]:
        """(life, offset, leader's end, time) since its life, or its log, last began again."""
        heard = self.heard[replica]
        begin = 0
        for index in range(1, len(heard)):
            (life, offset, _, _), (life_before, offset_before, _, _) = (
                heard[index],
                heard[index - 1],
            )
            if life != life_before or offset < offset_before:
                begin = index
        return heard[begin:]

    def end(self, replica: int) -> int:
        return self.heard[replica][-1][1] if self.heard[replica] else -1

    def caught_up(self, replica: int) -> int:
        """When it last had all that the leader had: some time before is enough to know."""
        heard = self.since_replaced(replica)
        times = [at for _, offset, end, at in heard if offset >= end]
        times += [at for (_, _, end, at), (_, offset, _, _) in pairwise(heard) if offset >= end]
        return max([*times, self.joined.get(replica, -(10**9))])

    def keeps_pace(self, replica: int, end: int, since_ms: int) -> bool:
        return self.end(replica) >= end or self.caught_up(replica) >= since_ms

    def is_eligible(self, replica: int) -> bool:
        return bool(self.heard[replica]) and self.heard[replica][-1][0] == LIVES[replica]

    def watermark(self, now: int, *, end: int, since_ms: int) -> int:
        possible = [self.isr, *self.open] + ([self.asked] if self.asked else [])
        if any(len(isr) < self.min_isr for isr in possible):
            return now
        waited = set().union(*possible)
        for replica in (2, 3):
            if self.is_eligible(replica) and self.keeps_pace(replica, end, since_ms):
                waited |= {replica}
        return max(now, min([end, *(self.end(one) for one in waited - {1})]))


class Scene:
    """A leader beside its twin; both hear the same, and answer the same."""

    def __init__(self, min_isr: int) -> None:
        self.held, self.twin = leading(min_isr=min_isr), Twin(min_isr)
        self.now_ms, self.end, self.mark, self.epoch = 0, 2, 0, 5

    def append(self) -> None:
        self.end += 1

    def wait(self) -> None:
        self.now_ms += 60

    def fetch(self, replica: int, offset: int, younger: int) -> None:
        life, offset = LIVES[replica] - younger, min(offset, self.end)
        before = self.twin.since_replaced(replica)
        if before and (life != before[-1][0] or offset < before[-1][1]):
            self.twin.joined.pop(replica, None)
        fetch(self.held, replica, offset, end=self.end, at_ms=self.now_ms, life=life)
        self.twin.heard[replica].append((life, offset, self.end, self.now_ms))

    def join(self, replica: int) -> None:
        twin = self.twin
        asked = join(self.held, replica, mark=self.mark)
        may = twin.asked is None and replica not in twin.isr and twin.is_eligible(replica)
        assert (asked is not None) == (may and twin.end(replica) >= self.mark)
        if asked is not None:
            twin.asked = {*twin.isr, replica}
            twin.joined[replica] = twin.heard[replica][-1][3]

    def leave(self) -> None:
        twin, since = self.twin, self.now_ms - LAG_MS
        asked = leave(self.held, now_ms=self.now_ms, end=self.end)
        stay = {1} | {one for one in twin.isr - {1} if twin.keeps_pace(one, self.end, since)}
        assert (asked is not None) == (since > 0 and twin.asked is None and stay != twin.isr)
        if asked is not None:
            assert set(asked.members) == stay
            twin.asked = stay

    def refused(self) -> None:
        self.held.refused()
        self.twin.asked = None

    def still_undecided(self) -> None:
        self.held.still_undecided()
        self.twin.open += [self.twin.asked] if self.twin.asked else []

    def learn(self, isr: tuple[int, ...]) -> None:
        self.epoch += 1
        committed(self.held, isr, self.epoch)
        self.twin.isr, self.twin.asked, self.twin.open = set(isr), None, []


@given(EVENTS, st.integers(1, 3))
def test_watermark_equals_that_of_a_naive_twin(
    events: list[tuple[object, ...]], min_isr: int
) -> None:
    scene = Scene(min_isr)
    for name, *facts in events:
        scene.now_ms += 7
        getattr(scene, str(name))(*facts)
        since_ms = scene.now_ms - LAG_MS
        moved = watermark(scene.held, scene.mark, end=scene.end, own=scene.end, since_ms=since_ms)
        assert moved == scene.twin.watermark(scene.mark, end=scene.end, since_ms=since_ms)
        assert moved >= scene.mark
        scene.mark = moved


def test_added_replicas_count_for_the_minimum_once_one_was_in_sync() -> None:
    """DIFFERS: Kafka's partition of one replica takes no acks=all before a second has everything.

    It may not count for less later: a replica that left the ISR may be eligible by now.
    """
    held = InSyncReplicas(
        node_id=1,
        partition_epoch=5,
        replicas=(1, 2, 3),
        isr=(1,),
        change=ReplicaChange(adding=(2, 3), joining=(2, 3)),
        epoch_start_offset=0,
        led_since_ms=0,
        min_insync_replicas=2,
    )
    assert (held.min_isr, watermark(held)) == (1, 100)
    held.learn(partition_epoch=6, replicas=(1, 2, 3), isr=(1, 2), is_recovering=False)
    assert held.min_isr == 2
    held.learn(partition_epoch=7, replicas=(1, 2, 3), isr=(1,), is_recovering=False)
    assert (held.min_isr, watermark(held)) == (2, 0)
    change = ReplicaChange(adding=(2, 3), joining=(2, 3))
    held.learn(partition_epoch=8, replicas=(1, 2, 3), isr=(1,), is_recovering=False, change=change)
    assert held.min_isr == 1


@pytest.mark.parametrize(
    ("isr", "change", "lacks"),
    [
        ((1, 2, 3), ReplicaChange(), set()),
        ((1, 2), ReplicaChange(), {Lack.REPLICAS, Lack.SPARE}),
        ((1,), ReplicaChange(), {Lack.REPLICAS, Lack.MIN_ISR}),
        ((1,), ReplicaChange((2, 3), (), (2, 3)), {Lack.SPARE, Lack.FINAL_REPLICAS}),
        ((1, 2), ReplicaChange((2, 3)), {Lack.SPARE, Lack.FINAL_REPLICAS}),
        ((1,), ReplicaChange((2, 3)), {Lack.MIN_ISR, Lack.FINAL_REPLICAS}),  # 2 was in it
        ((1,), ReplicaChange((3,)), {Lack.REPLICAS, Lack.MIN_ISR, Lack.FINAL_REPLICAS}),
        ((1, 2), ReplicaChange((), (3,)), {Lack.REPLICAS, Lack.SPARE, Lack.FINAL_REPLICAS}),
    ],
)
def test_added_replicas_are_not_lacked_and_removed_ones_are(
    isr: tuple[int, ...], change: ReplicaChange, lacks: set[Lack]
) -> None:
    held = leading(isr)
    held.learn(
        partition_epoch=6, replicas=held.replicas, isr=isr, is_recovering=False, change=change
    )
    assert held.lacks == lacks


def nearest_of(offset: int, near: Iterable[int] = (2, 3), isr: Iterable[int] = (1, 2, 3)) -> object:
    """Follower 2 has [10, 60), 3 has [0, 50)."""
    held = leading(isr)
    fetch(held, 2, 60, log_start=10)
    fetch(held, 3, 50)
    return held.nearest(frozenset(near), offset)


@pytest.mark.parametrize(
    ("offset", "nearest"), [(0, 3), (9, 3), (10, 2), (50, 2), (51, 2), (60, 2), (61, None)]
)
def test_a_consumer_is_sent_to_the_follower_that_has_most_and_its_offset(
    offset: int, nearest: int | None
) -> None:
    assert nearest_of(offset) == nearest


def test_a_consumer_is_sent_to_nobody_outside_its_rack_or_the_isr() -> None:
    assert nearest_of(20, near=(3,)) == 3
    assert nearest_of(20, near=(4,)) is None
    assert nearest_of(20, isr=(1, 3)) == 3
    assert leading().nearest(frozenset((2, 3)), 0) is None  # none has fetched yet


def test_the_nearest_follower_is_the_most_caught_up_then_the_lowest_id() -> None:
    held = leading()
    fetch(held, 2, 100, at_ms=5)
    fetch(held, 3, 100, at_ms=6)
    assert held.nearest(frozenset((2, 3)), 0) == 3
    fetch(held, 2, 100, at_ms=6)
    assert held.nearest(frozenset((2, 3)), 0) == 2
