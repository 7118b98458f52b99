"""Elections: the rules one by one, and against a naive twin of what Kafka's builder does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from metadata_topic.controller.election_rules import ElectionRules, rules_of
from metadata_topic.controller.partition_change import (
    Election,
    Electorate,
    change_records,
    decide,
)
from metadata_topic.image.image import ELR_VERSION, EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from metadata_topic.image.model import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    BrokerImage,
    PartitionImage,
)
from metadata_topic.image.records import decode_record, encode_record, make
from metadata_topic.image.replay_topics import merge
from tests.support.samples.metadata import apply, cluster_of

DIRECTORY = b"d" * 16
REPLICAS = (1, 2, 3)


def image_of(live: set[int], *, has_elr: bool) -> MetadataImage:
    brokers = {
        one: BrokerImage(one, 7, bytes(16), fenced=one not in live, log_dirs=(DIRECTORY,))
        for one in REPLICAS
    }
    features = {METADATA_VERSION: 30} | ({ELR_VERSION: 1} if has_elr else {})
    return replace(EMPTY_IMAGE, brokers=brokers, features=features)


def partition(
    isr: tuple[int, ...],
    *,
    leader: int | None = None,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    recovery: int = RECOVERED,
    lost: tuple[int, ...] = (),
) -> PartitionImage:
    if leader is None:
        leader = isr[0] if isr else NO_LEADER
    directories = tuple(DIRECTORY_LOST if one in lost else DIRECTORY for one in REPLICAS)
    return PartitionImage(
        REPLICAS,
        isr,
        leader,
        4,
        8,
        directories,
        elr=elr,
        last_known_elr=last_known,
        leader_recovery_state=recovery,
    )


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    isr = tuple(draw(st.lists(st.sampled_from(REPLICAS), unique=True)))
    others = [one for one in REPLICAS if one not in isr]
    elr = tuple(draw(st.lists(st.sampled_from(others), unique=True))) if others else ()
    leader = draw(st.sampled_from([*isr, NO_LEADER]))
    last_known = () if leader != NO_LEADER else draw(st.sampled_from([(), (1,), (3,)]))
    lost = tuple(draw(st.lists(st.sampled_from(REPLICAS), unique=True, max_size=2)))
    return partition(isr, leader=leader, elr=elr, last_known=last_known, lost=lost)


class Twin:
    """Kafka's builder step by step, on sets."""

    def __init__(self, old: PartitionImage, live: set[int], *, has_elr: bool) -> None:
        self.old, self.has_elr = old, has_elr
        self.may = {one for one in live if old.directories[REPLICAS.index(one)] != DIRECTORY_LOST}

    def eligible(self, isr: list[int], min_isr: int, unclean_ended: set[int]) -> set[int]:
        old = self.old
        if not self.has_elr:
            return set(old.elr) - unclean_ended
        if len(isr) >= min_isr:
            return set()
        return (set(old.elr) | set(old.isr)) - set(isr) - unclean_ended

    def elect(self, isr: list[int], elr: set[int], election: Election) -> tuple[int, bool]:
        old, valid = self.old, (set(isr) if isr else elr) & self.may
        if election is Election.PREFERRED and 1 in valid:
            return 1, False
        if valid:
            return old.leader if old.leader in valid else min(valid), False
        is_blank = self.has_elr and not isr and not elr
        if is_blank and self.may & set(old.last_known_elr):
            return old.last_known_elr[0], True
        if election in (Election.UNCLEAN, Election.ORDERED) and self.may:
            return min(self.may), True
        return NO_LEADER, False

    def build(
        self, isr: list[int], min_isr: int, election: Election, unclean_ended: set[int]
    ) -> tuple[int, set[int], set[int], tuple[int, ...], bool]:
        old, members = self.old, set(isr)
        elr = self.eligible(isr, min_isr, unclean_ended)
        leader, unclean = self.elect(isr, elr, election)
        last_known = old.last_known_elr
        if leader not in (old.leader, NO_LEADER):
            last_known = ()
            if unclean:
                members, elr = {leader}, set()
            elif leader in elr:
                members, elr = {leader}, elr - {leader} if min_isr > 1 else set()  # DIFFERS
        elif leader != old.leader and self.has_elr and not last_known:
            last_known = (old.leader,)
        if not members and not self.has_elr:
            members = set(old.isr)
        if not self.has_elr and leader != NO_LEADER:
            elr = set()
        return leader, members, elr, last_known, unclean


@given(
    old=partitions(),
    live=st.sets(st.sampled_from(REPLICAS)),
    has_elr=st.booleans(),
    min_isr=st.integers(1, 3),
    election=st.sampled_from(Election),
    ended=st.sets(st.sampled_from(REPLICAS), max_size=1),
    leaving=st.sets(st.sampled_from(REPLICAS), max_size=1),
)
def test_a_decision_equals_kafkas_builder(
    old: PartitionImage,
    live: set[int],
    has_elr: bool,
    min_isr: int,
    election: Election,
    ended: set[int],
    leaving: set[int],
) -> None:
    image = image_of(live, has_elr=has_elr)
    isr = tuple(one for one in old.isr if one not in ended | leaving)
    new = decide(
        old,
        structs.replace(old, isr=isr),
        Electorate(image),
        ElectionRules(min_isr),
        election=election,
        ineligible=ended,
    )
    leader, members, elr, last_known, unclean = Twin(old, live, has_elr=has_elr).build(
        list(isr), min_isr, election, ended
    )
    assert (new.leader, set(new.isr), set(new.elr), new.last_known_elr) == (
        leader,
        members,
        elr,
        last_known,
    )
    is_recovering = unclean and leader != old.leader
    assert new.leader_recovery_state == (RECOVERING if is_recovering else RECOVERED)
    # The record says all of it.
    records = change_records(image, bytes(16), 0, old, new)
    after = merge(old, records[0].value) if records else old
    assert structs.replace(after, leader_epoch=4, partition_epoch=8, unclean_epoch=-1) == new


@pytest.mark.parametrize("is_unclean", [False, True])
def test_an_unclean_election_is_the_topics_choice(is_unclean: bool) -> None:
    old = partition((1,))
    image = image_of({2, 3}, has_elr=False)
    new = decide(old, structs.replace(old, isr=()), Electorate(image), ElectionRules(1, is_unclean))
    assert (new.leader, new.isr) == ((2, (2,)) if is_unclean else (NO_LEADER, (1,)))


def test_a_broker_counts_as_it_is_after_the_decision() -> None:
    image = image_of({1}, has_elr=False)
    old = partition((1, 2))
    returning = replace(image.brokers[2], fenced=False)
    assert not Electorate(image).may_lead(old, 2)
    assert Electorate(image, returning).may_lead(old, 2)
    assert Electorate(image, returning).may_lead(old, 1)
    assert not Electorate(image, replace(image.brokers[1], in_controlled_shutdown=True)).may_lead(
        old, 1
    )


@pytest.mark.parametrize(
    ("directory", "may"),
    [(DIRECTORY, True), (DIRECTORY_UNASSIGNED, True), (DIRECTORY_LOST, False), (b"x" * 16, False)],
)
def test_a_replica_leads_from_a_directory_that_is_registered(directory: bytes, may: bool) -> None:
    old = structs.replace(partition((1,)), directories=(directory, DIRECTORY, DIRECTORY))
    assert Electorate(image_of({1}, has_elr=False)).may_lead(old, 1) == may


def test_settings_of_the_topic_count_first_and_nonsense_not_at_all() -> None:
    image = apply(
        cluster_of(1),
        [
            make("TopicRecord", name="t", topic_id=b"t" * 16),
            make("PartitionRecord", 2, topic_id=b"t" * 16, replicas=[1, 2, 3], isr=[1], leader=1),
        ],
    )
    topic = image.topics_by_name["t"]

    def resolved(*configs: tuple[int, str, str, str]) -> ElectionRules:
        records = [
            make("ConfigRecord", resource_type=kind, resource_name=of, name=name, value=value)
            for kind, of, name, value in configs
        ]
        return rules_of(apply(image, records), topic, ElectionRules(2, is_unclean=False))

    minimum, unclean = "min.insync.replicas", "unclean.leader.election.enable"
    assert resolved() == ElectionRules(2, is_unclean=False)
    assert resolved((4, "", unclean, "true")) == ElectionRules(2, is_unclean=True)
    assert resolved((4, "", unclean, "true"), (2, "t", unclean, "False")) == ElectionRules(2)
    assert resolved((4, "1", minimum, "1")) == ElectionRules(2)
    assert resolved((4, "", minimum, "1"), (2, "t", minimum, "9")) == ElectionRules(3)
    assert resolved((2, "t", minimum, "many")) == ElectionRules(2)


def added(
    isr: tuple[int, ...], adding: tuple[int, ...] = (2, 3), *, elr: tuple[int, ...] = ()
) -> PartitionImage:
    return structs.replace(partition(isr, elr=elr), adding=adding)


@pytest.mark.parametrize("has_elr", [False, True])
def test_a_replica_that_is_added_is_elected_by_nobodys_choice(has_elr: bool) -> None:
    """DIFFERS from Kafka: it may have no record yet, and the last full copy may come back. An
    operator may order it: all old replicas of a partition that moves may be lost."""
    image = image_of({2, 3}, has_elr=has_elr)
    old = added((1,))
    rules = ElectionRules(1, is_unclean=True)
    assert decide(old, old, Electorate(image), rules).leader == NO_LEADER
    ordered = decide(old, old, Electorate(image), rules, election=Election.ORDERED)
    assert (ordered.leader, ordered.leader_recovery_state) == (2, RECOVERING)
    done = structs.replace(old, adding=())
    assert decide(done, done, Electorate(image), rules).leader == 2


def test_an_added_replica_that_is_in_sync_is_elected() -> None:
    image = image_of({2, 3}, has_elr=True)
    old = added((1, 2))
    new = decide(old, structs.replace(old, isr=(2,)), Electorate(image), ElectionRules(1))
    assert (new.leader, new.isr, new.adding) == (2, (2,), (2, 3))


def test_an_addition_is_complete_when_all_replicas_are_in_sync() -> None:
    image = image_of({1, 2, 3}, has_elr=True)
    for isr, adding in [((1, 2), (2, 3)), ((2, 3), (2, 3)), ((1, 2, 3), ())]:
        old = added((2,))
        new = decide(old, structs.replace(old, isr=isr), Electorate(image), ElectionRules(1))
        assert new.adding == adding
        (record,) = change_records(image, bytes(16), 0, old, new)
        assert merge(old, record.value).adding == adding
    moved = structs.replace(added((2,)), removing=(1,))
    everybody = structs.replace(moved, isr=(1, 2, 3))
    new = decide(moved, everybody, Electorate(image), ElectionRules(1))
    assert (new.replicas, new.isr, new.adding, new.removing) == ((2, 3), (2, 3), (), ())


def test_a_removed_replica_is_not_eligible_and_raises_the_leader_epoch() -> None:
    image = image_of({1, 2, 3}, has_elr=True)
    old = added((1, 2), elr=(3,))
    wanted = structs.replace(
        old, replicas=(1,), isr=(1,), adding=(), directories=old.directories[:1]
    )
    new = decide(old, wanted, Electorate(image), ElectionRules(2))
    assert (new.leader, new.isr, new.elr) == (1, (1,), ())
    (record,) = change_records(image, bytes(16), 0, old, new)
    after = merge(old, record.value)
    assert (after.leader, after.leader_epoch, after.replicas) == (1, old.leader_epoch + 1, (1,))
    assert after.directories == old.directories[:1]


@pytest.mark.parametrize("version", [11, 12])
def test_a_replica_that_is_taken_away_and_lagged_raises_the_leader_epoch(version: int) -> None:
    image = replace(image_of({1, 2, 3}, has_elr=False), features={METADATA_VERSION: version})
    old = added((1,))
    wanted = structs.replace(old, replicas=(1,), adding=(), directories=old.directories[:1])
    (record,) = change_records(image, bytes(16), 0, old, wanted)
    assert merge(old, record.value).leader_epoch == old.leader_epoch + 1


def test_metadata_without_directories_get_replicas_without() -> None:
    image = replace(image_of({1, 2, 3}, has_elr=False), features={METADATA_VERSION: 16})
    old = structs.replace(partition((1,)), replicas=(1,), directories=(bytes(16),))
    wanted = structs.replace(
        old, replicas=(1, 2), adding=(2,), directories=(bytes(16), DIRECTORY_UNASSIGNED)
    )
    (record,) = change_records(image, bytes(16), 0, old, wanted)
    assert record.version == 0
    written = decode_record(encode_record(record)).value
    assert (written.replicas, written.directories) == ([1, 2], None)


@pytest.mark.parametrize(
    ("isr", "elr", "joining"),
    [((1,), (), (2, 3)), ((1, 2), (), ()), ((1,), (3,), ()), ((2,), (1,), ())],
)
def test_added_replicas_are_joining_until_one_may_lead(
    isr: tuple[int, ...], elr: tuple[int, ...], joining: tuple[int, ...]
) -> None:
    assert added(isr, elr=elr).joining == joining


def test_whoever_is_elected_and_commits_alone_leaves_nobody_eligible() -> None:
    """The minimum was lowered while nobody led: what it takes from now on the others lack."""
    old, electorate = partition((), elr=(1, 2)), Electorate(image_of({1}, has_elr=True))
    led = decide(old, old, electorate, ElectionRules(min_isr=1))
    assert (led.leader, led.isr, led.elr) == (1, (1,), ())
    gone = decide(
        led, structs.replace(led, isr=()), Electorate(image_of({2}, has_elr=True)), ElectionRules()
    )
    assert (gone.leader, gone.elr) == (NO_LEADER, (1,))
