"""Elections on request, for balance, and of unclean leaders; and when the controller looks."""

from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.elections import (
    ELECTIONS_A_DECISION,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from metadata_topic.controller.errors import InvalidRequestError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import RECOVERED, RECOVERING
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.active.election_timers import ElectionTimers
from tests.support.samples.metadata import apply, cluster_of
from tests.support.worlds.controlled_brokers import clustered
from tests.support.worlds.naive_quorum import PLAIN

PREFERRED, UNCLEAN = 0, 1
TOPIC = b"e" * 16


def partitions(*states: tuple[tuple[int, ...], int], name: str = "e") -> list[MetadataRecord]:
    """Records of a topic: (ISR, leader) of each partition; replicas are 1 and 2."""
    topic_id = (name.encode() * 16)[:16]
    return [
        make("TopicRecord", name=name, topic_id=topic_id),
        *(
            make(
                "PartitionRecord",
                2,
                partition_id=index,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=list(isr),
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes([101]) * 16, bytes([102]) * 16],
            )
            for index, (isr, leader) in enumerate(states)
        ),
    ]


ALLOWED = make(
    "ConfigRecord",
    resource_type=2,
    resource_name="e",
    name="unclean.leader.election.enable",
    value="true",
)
BOTH, MOVED, ALONE, NOBODY = ((1, 2), 1), ((1, 2), 2), ((2,), 2), ((3,), -1)


@pytest.fixture
def image() -> MetadataImage:
    return apply(cluster_of(1, 2), partitions(BOTH, MOVED, ALONE, NOBODY))


def leaders(image: MetadataImage) -> list[int]:
    return [one.leader for one in image.topics_by_name["e"].partitions.values()]


def elected(
    image: MetadataImage, election_type: int, *indexes: int
) -> tuple[dict[int, int], MetadataImage]:
    result = elect_leaders(image, election_type=election_type, asked=[("e", indexes)])
    (topic,) = result.response
    codes = {index: 0 if error is None else int(error.code) for index, error in topic.partitions}
    return codes, apply(image, result.records)


def test_preferred_leaders_are_elected_where_they_are_in_sync(image: MetadataImage) -> None:
    codes, after = elected(image, PREFERRED, 0, 1, 2, 3, 7)
    assert codes == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        1: 0,
        2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(after) == [1, 1, 2, -1]
    assert after.topics_by_name["e"].partitions[1].isr == (1, 2)


def test_an_unclean_leader_is_elected_where_there_is_none(image: MetadataImage) -> None:
    codes, after = elected(image, UNCLEAN, 0, 2, 3)
    needless = ErrorCode.ELECTION_NOT_NEEDED
    assert codes == {0: needless, 2: needless, 3: 0}
    made = after.topics_by_name["e"].partitions[3]
    assert (made.leader, made.isr, made.leader_recovery_state) == (1, (1,), RECOVERING)


def test_no_unclean_leader_can_be_elected_of_brokers_that_are_away() -> None:
    image = apply(cluster_of(), partitions(NOBODY))
    codes, after = elected(image, UNCLEAN, 0)
    assert codes == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert leaders(after) == [-1]


def test_a_partition_that_is_named_twice_is_elected_once(image: MetadataImage) -> None:
    result = elect_leaders(
        image, election_type=PREFERRED, asked=[("e", [1]), ("e", [1]), ("x", [0])]
    )
    first, second, unknown = (topic.partitions[0][1] for topic in result.response)
    assert first is None
    assert second is not None
    assert second.code == ErrorCode.ELECTION_NOT_NEEDED
    assert str(second) == "Leader election not needed for topic partition."
    assert str(unknown) == "No such topic as x"
    assert len(result.records) == 1


def test_of_all_partitions_only_those_that_need_an_election_are_named(image: MetadataImage) -> None:
    image = apply(image, partitions(BOTH, name="f"))
    result = elect_leaders(image, election_type=PREFERRED, asked=None)
    assert [(topic.name, [i for i, _ in topic.partitions]) for topic in result.response] == [
        ("e", [1, 2, 3]),
        ("f", []),
    ]
    assert leaders(apply(image, result.records)) == [1, 1, 2, -1]


def test_an_unknown_type_of_election_is_refused(image: MetadataImage) -> None:
    with pytest.raises(InvalidRequestError, match="Unknown election type 2"):
        elect_leaders(image, election_type=2, asked=None)


# -- by the controller itself


def test_the_balance_makes_so_many_elections_in_one_decision() -> None:
    many = ELECTIONS_A_DECISION + 3
    image = apply(cluster_of(1, 2), partitions(*[MOVED] * many, BOTH, ALONE))
    for left in (3, 0):
        result = balance_leaders(image)
        image = apply(image, result.records)
        assert leaders(image).count(2) == left + 1
        assert result.response == (left > 0)
    assert balance_leaders(image) == ControllerResult((), False)


@pytest.mark.parametrize("is_unclean", [False, True])
def test_an_unclean_leader_comes_once_the_topic_allows_it(
    image: MetadataImage, *, is_unclean: bool
) -> None:
    result = elect_unclean_leaders(image, defaults=ElectionRules(is_unclean=is_unclean))
    after = apply(image, result.records)
    assert leaders(after) == [1, 2, 2, 1 if is_unclean else -1]
    state = after.topics_by_name["e"].partitions[3].leader_recovery_state
    assert state == (RECOVERING if is_unclean else RECOVERED)


def test_the_metadata_topic_of_the_tier_gets_no_unclean_leader_by_itself() -> None:
    """Whatever the defaults are; what it lacks nobody knows any more. Asked for, it gets one."""
    name = REMOTE_LOG_METADATA_TOPIC
    image = apply(cluster_of(1, 2), partitions(NOBODY, name=name))
    result = elect_unclean_leaders(image, defaults=ElectionRules(is_unclean=True))
    assert result == ControllerResult((), False)
    asked = elect_leaders(image, election_type=UNCLEAN, asked=[(name, [0])])
    assert apply(image, asked.records).topics_by_name[name].partitions[0].leader == 1


def test_the_controller_looks_from_time_to_time() -> None:
    many = ELECTIONS_A_DECISION + 3
    cluster = clustered(
        replace(PLAIN, unclean_election_interval_ms=5_000, rebalance_interval_ms=3_000)
    )
    quorum = cluster.quorum
    ElectionTimers(quorum.loop, quorum.world)
    quorum.depose()
    quorum.elect()
    quorum.run(2)
    cluster.start(1, 2)
    made = quorum.submit(lambda _: ControllerResult(tuple(partitions(*[MOVED] * many, NOBODY)), 0))
    quorum.run(2)
    assert made.code == 0
    for second in range(1, 12):
        quorum.run(1_000)
        for broker_id in (1, 2):
            cluster.beat(broker_id)
        assert leaders(quorum.image).count(2) == (many if second < 3 else 0), second
        if second == 6:
            quorum.submit(lambda _: ControllerResult((ALLOWED,), 0))
        assert (leaders(quorum.image)[-1] == 1) == (second >= 10), second


def test_a_controller_that_is_none_looks_no_more() -> None:
    cluster = clustered(replace(PLAIN, rebalance_interval_ms=3_000, unclean_election_interval_ms=0))
    quorum = cluster.quorum
    ElectionTimers(quorum.loop, quorum.world)
    quorum.depose()
    quorum.elect()
    quorum.run(2)
    cluster.start(1, 2)
    quorum.submit(lambda _: ControllerResult(tuple(partitions(MOVED)), 0))
    quorum.run(2)
    quorum.depose()
    quorum.run(10_000)
    assert leaders(quorum.image) == [2]
