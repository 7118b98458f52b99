"""Reassignments that take replicas away: rows of Kafka's scenarios, and stories beside a twin."""

import random
from dataclasses import dataclass, field

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.alter_partition import ANY_EPOCH, ProposedIsr, alter_partition
from metadata_topic.controller.brokers import fence_broker, unfence_broker
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.elections import elect_leaders
from metadata_topic.controller.reassignment import Reassignment, alter_reassignments
from metadata_topic.image.image import ELR_VERSION, MetadataImage
from metadata_topic.image.model import DIRECTORY_UNASSIGNED, NO_LEADER, PartitionImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of

TOPIC = b"t" * 16
BROKERS = range(6)


def directory(broker_id: int) -> bytes:
    return bytes([100 + broker_id]) * 16


def topic(
    image: MetadataImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...] = (),
    leader: int | None = None,
) -> MetadataImage:
    members = isr or replicas
    partition = make(
        "PartitionRecord",
        2,
        partition_id=0,
        topic_id=TOPIC,
        replicas=list(replicas),
        isr=list(members),
        leader=members[0] if leader is None else leader,
        leader_epoch=3,
        partition_epoch=7,
        directories=[directory(one) for one in replicas],
    )
    return apply(image, [make("TopicRecord", name="t", topic_id=TOPIC), partition])


def now(image: MetadataImage) -> PartitionImage:
    return image.topics_by_id[TOPIC].partitions[0]


def reassigned(
    image: MetadataImage, replicas: tuple[int, ...] | None, *, rules: ElectionRules | None = None
) -> tuple[ErrorCode, MetadataImage]:
    result = alter_reassignments(
        image, [Reassignment("t", 0, replicas)], defaults=rules or ElectionRules()
    )
    (error,) = result.response
    assert error is None or result.records == ()  # nothing half done
    code = ErrorCode.NONE if error is None else error.code
    return code, apply(image, result.records)


def in_sync(image: MetadataImage, *isr: int) -> tuple[ErrorCode, MetadataImage]:
    """The leader proposes an ISR."""
    old = now(image)
    members = tuple((one, ANY_EPOCH) for one in isr)
    result = alter_partition(
        image,
        broker_id=old.leader,
        broker_epoch=image.brokers[old.leader].epoch,
        proposals=[
            ProposedIsr(ReplicaId(TOPIC, 0), old.leader_epoch, old.partition_epoch, members)
        ],
    )
    (altered,) = result.response
    code = ErrorCode.NONE if altered.error is None else altered.error.code
    return code, apply(image, result.records)


@pytest.mark.parametrize(
    ("before", "target", "replicas", "adding", "removing"),
    [
        ((3, 2, 1), (3, 2, 1), (3, 2, 1), (), ()),
        ((3, 2, 1), (3, 5, 2, 1, 4), (3, 5, 2, 1, 4), (4, 5), ()),
        ((3, 2, 1, 0), (4, 3, 1, 5), (4, 3, 1, 5, 0, 2), (4, 5), (0, 2)),
        ((3, 2, 1, 0), (0, 1, 3, 2), (0, 1, 3, 2), (), ()),
        ((3, 2, 1, 0), (3, 1), (3, 1), (), ()),  # all that stay are in sync: complete at once
        ((0, 1), (2, 3), (2, 3, 0, 1), (2, 3), (0, 1)),
    ],
)
def test_wanted_replicas_come_first_and_those_that_go_by_id(
    before: tuple[int, ...],
    target: tuple[int, ...],
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> None:
    code, image = reassigned(topic(cluster_of(*BROKERS), before), target)
    found = now(image)
    assert (code, found.replicas, found.adding, found.removing) == (0, replicas, adding, removing)
    assert found.directories == tuple(
        directory(one) if one in before else DIRECTORY_UNASSIGNED for one in replicas
    )


@pytest.mark.parametrize(
    ("before", "target", "isr", "replicas", "leader"),
    [
        ((0, 1, 2), (3, 4, 5), (0, 1, 2, 3, 4), None, 0),
        ((0, 1, 2), (3, 4, 5), (0, 1, 2, 3, 4, 5), (3, 4, 5), 3),
        ((0, 1, 2), (3, 4, 5), (0, 5, 4, 3), (3, 4, 5), 3),
        ((0, 1, 2), (0, 1, 3), (0, 1, 2, 3), (0, 1, 3), 0),
        ((0, 1, 2), (0, 1, 3), (0, 3), None, 0),  # 1 stays and lags
    ],
)
def test_all_wanted_replicas_in_sync_complete_it(
    before: tuple[int, ...],
    target: tuple[int, ...],
    isr: tuple[int, ...],
    replicas: tuple[int, ...] | None,
    leader: int,
) -> None:
    _, image = reassigned(topic(cluster_of(*BROKERS), before), target)
    old = now(image)
    code, image = in_sync(image, *isr)
    found = now(image)
    assert found.leader == leader
    if replicas is None:
        assert (code, found.replicas, found.isr) == (0, old.replicas, isr)
        assert (found.adding, found.removing) == (old.adding, old.removing)
        assert found.leader_epoch == old.leader_epoch
        return
    is_new = ErrorCode.NEW_LEADER_ELECTED if leader != old.leader else ErrorCode.NONE
    assert (code, found.replicas, found.adding, found.removing) == (is_new, replicas, (), ())
    assert found.isr == tuple(one for one in isr if one in replicas)
    assert found.leader_epoch == old.leader_epoch + 1  # followers and clients look again
    assert len(found.directories) == len(found.replicas)


def test_replicas_stay_while_no_other_can_lead() -> None:
    """DIFFERS: Kafka takes them out, and the partition has no leader and one replica."""
    image = topic(cluster_of(*BROKERS), (0, 1, 2), isr=(2,), leader=NO_LEADER)
    fenced = fence_broker(image, broker_id=2, broker_epoch=image.brokers[2].epoch)
    image = apply(image, fenced.records)
    code, image = reassigned(image, (2,))
    found = now(image)
    assert (code, found.replicas, found.removing) == (0, (2, 0, 1), (0, 1))
    back = unfence_broker(image, broker_id=2, broker_epoch=image.brokers[2].epoch)
    found = now(apply(image, back.records))
    assert (found.replicas, found.isr, found.leader, found.removing) == ((2,), (2,), 2, ())


def test_a_replaced_reassignment_is_cancelled_to_the_original_replicas() -> None:
    """DIFFERS: in Kafka 2 and 3 would stay."""
    _, image = reassigned(topic(cluster_of(*BROKERS), (0, 1)), (2, 3))
    _, image = in_sync(image, 0, 1, 2)
    elected = elect_leaders(image, election_type=0, asked=[("t", [0])])
    image = apply(image, elected.records)
    assert now(image).leader == 2
    _, image = reassigned(image, (4, 5))
    going = now(image)
    assert (going.replicas, going.adding, going.removing, going.leader) == (
        (4, 5, 0, 1, 2, 3),
        (2, 3, 4, 5),
        (0, 1, 2, 3),
        2,
    )
    code, cancelled = reassigned(image, None)
    found = now(cancelled)
    assert (code, found.replicas, found.isr, found.leader) == (0, (0, 1), (0, 1), 0)
    assert (found.adding, found.removing) == ((), ())
    code, image = in_sync(image, 0, 1, 2, 3, 4, 5)
    found = now(image)
    assert (code, found.replicas, found.leader) == (ErrorCode.NEW_LEADER_ELECTED, (4, 5), 4)


def test_a_replica_that_was_to_go_stays_when_the_next_request_names_it() -> None:
    """DIFFERS: where that request adds and removes nothing Kafka continues to remove it."""
    _, image = reassigned(topic(cluster_of(*BROKERS), (0, 1)), (2, 1))
    _, image = reassigned(image, (2, 1, 0))
    found = now(image)
    assert (found.replicas, found.adding, found.removing) == ((2, 1, 0), (2,), ())
    _, image = in_sync(image, 0, 1, 2)
    found = now(image)
    assert (found.replicas, found.leader, found.adding) == ((2, 1, 0), 0, ())


@pytest.mark.parametrize("target", [(1, 0), (3,), (3, 0)])
def test_one_that_is_replaced_by_fewer_replicas_completes(target: tuple[int, ...]) -> None:
    """DIFFERS: in Kafka replicas that the first one added have to be in sync for ever."""
    _, image = reassigned(topic(cluster_of(*BROKERS), (0, 1)), (2, 3))
    _, image = in_sync(image, 0, 1, 3)
    _, image = reassigned(image, target)
    found = now(image)
    assert (found.replicas, found.adding, found.removing) == (target, (), ())
    assert set(found.isr) == set(target)


def test_a_reassignment_elects_no_unclean_leader() -> None:
    image = topic(cluster_of(*BROKERS, features={ELR_VERSION: 1}), (0, 1), isr=(0,))
    fenced = fence_broker(image, broker_id=0, broker_epoch=image.brokers[0].epoch)
    image = apply(image, fenced.records)
    _, image = reassigned(image, (1, 2), rules=ElectionRules(1, is_unclean=True))
    assert (now(image).leader, now(image).replicas) == (NO_LEADER, (1, 2, 0))


def test_a_request_with_a_deleted_topic_and_bad_replicas_does_the_others() -> None:
    image = topic(cluster_of(*BROKERS), (0, 1))
    asked = [
        Reassignment("gone", 0, (0,)),
        Reassignment("t", 5, (0,)),
        Reassignment("t", 0, (-1, 0)),
        Reassignment("t", 0, (0, 0)),
        Reassignment("t", 0, ()),
        Reassignment("t", 0, None),
        Reassignment("t", 0, (2, 3)),
    ]
    result = alter_reassignments(image, asked)
    assert [0 if one is None else one.code for one in result.response] == [
        *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
        *[ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        0,
    ]
    assert len(result.records) == 1


@dataclass
class Twin:
    """A partition by sets and plain words; all its brokers live."""

    replicas: list[int]
    target: list[int]
    isr: set[int]
    leader: int
    fresh: set[int] = field(default_factory=set)
    """Replicas that were not there before the reassignment."""

    @property
    def is_going(self) -> bool:
        return bool(self.fresh) or len(self.replicas) > len(self.target)

    def reassign(self, target: list[int]) -> None:
        present = set(self.replicas)
        originals = present - self.fresh
        self.fresh = (present | set(target)) - originals
        self.replicas = target + sorted(present - set(target))
        self.target = target
        self.settle()

    def cancel(self) -> bool:
        if not self.is_going or not self.isr - self.fresh:
            return False
        self.replicas = [one for one in self.replicas if one not in self.fresh]
        self.target, self.isr, self.fresh = list(self.replicas), self.isr - self.fresh, set()
        self.elect()
        return True

    def say(self, isr: set[int]) -> None:
        self.isr = isr
        self.settle()

    def settle(self) -> None:
        if set(self.target) <= self.isr:
            self.replicas, self.fresh = list(self.target), set()
            self.isr &= set(self.target)
            self.elect()

    def elect(self) -> None:
        if self.leader not in self.isr:
            self.leader = next(one for one in self.replicas if one in self.isr)


@pytest.mark.parametrize("seed", range(150))
def test_stories_equal_those_of_a_twin(seed: int) -> None:
    rng = random.Random(seed)
    first = rng.sample(BROKERS, rng.randint(1, 3))
    features = {ELR_VERSION: 1} if seed % 2 else {}
    image = topic(cluster_of(*BROKERS, features=features), tuple(first))
    twin = Twin(list(first), list(first), set(first), first[0])
    for _ in range(25):
        old = now(image)
        match rng.choice(["reassign", "cancel", "say", "say", "prefer"]):
            case "reassign":
                target = rng.sample(BROKERS, rng.randint(1, 4))
                code, image = reassigned(image, tuple(target))
                assert code == ErrorCode.NONE
                twin.reassign(target)
            case "cancel":
                was_going = twin.is_going
                code, image = reassigned(image, None)
                done = twin.cancel()
                assert (code == ErrorCode.NONE) == done
                assert was_going or code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            case "say":
                others = [one for one in old.replicas if one != old.leader]
                isr = {old.leader, *rng.sample(others, rng.randint(0, len(others)))}
                code, image = in_sync(image, *isr)
                twin.say(isr)
                elected = code == ErrorCode.NEW_LEADER_ELECTED
                assert elected == (twin.leader != old.leader)
            case _:
                made = elect_leaders(image, election_type=0, asked=[("t", [0])])
                image = apply(image, made.records)
                if old.replicas[0] in old.isr:
                    twin.leader = old.replicas[0]
        found = now(image)
        assert (list(found.replicas), set(found.isr), found.leader) == (
            twin.replicas,
            twin.isr,
            twin.leader,
        )
        assert (set(found.adding), set(found.removing)) == (
            twin.fresh,
            set(twin.replicas) - set(twin.target),
        )
        check_step(old, found)


def check_step(old: PartitionImage, new: PartitionImage) -> None:
    """What holds of each change, whatever it was."""
    assert new.leader in new.isr
    assert set(new.isr) <= set(new.replicas)
    assert set(new.elr) <= set(new.replicas) - set(new.isr)
    has_lost = not set(old.replicas) <= set(new.replicas)
    assert new.leader_epoch == old.leader_epoch + (has_lost or new.leader != old.leader)
    for one in new.replicas:
        stays = one in old.replicas
        assert new.directory_of(one) == (old.directory_of(one) if stays else DIRECTORY_UNASSIGNED)
