"""Brokers by the controller's side: registrations, heartbeats, sessions and their end."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.broker_sessions import BrokerSessions
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.heartbeats import Heartbeat, HeartbeatAnswer, heartbeat
from metadata_topic.controller.registration_rules import check_registration
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import ELR_VERSION, METADATA_VERSION
from metadata_topic.image.model import RemoteStore
from metadata_topic.image.records import make
from metadata_topic.quorum.active.broker_control import FENCED_AT_ONCE
from tests.support.samples.metadata import cluster_of, registration_of
from tests.support.worlds.controlled_brokers import SESSION_MS, TOPIC_ID, Cluster, clustered
from tests.support.worlds.naive_quorum import PLAIN, Answer

TIMED_OUT = "kafka_controller_KafkaController_TimedOutBrokerHeartbeatCount"


@pytest.fixture
def cluster() -> Cluster:
    return clustered(PLAIN)


# -- registration ---------------------------------------------------------------------------------


def test_a_repeated_registration_gets_the_same_epoch_and_keeps_leaders(
    cluster: Cluster,
) -> None:
    cluster.start(1)
    cluster.partition(1)
    epoch = cluster.broker(1).epoch
    assert cluster.register(1, rack="r").response == epoch
    assert not cluster.broker(1).fenced
    assert cluster.broker(1).rack == "r"
    assert cluster.led == (1, 0, (1,))


def test_another_incarnation_waits_for_the_end_of_the_session(cluster: Cluster) -> None:
    cluster.start(1)
    epoch = cluster.broker(1).epoch
    refused = cluster.register(1, life=2)
    assert refused.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.broker(1).epoch == epoch
    cluster.quorum.run(SESSION_MS)
    assert cluster.register(1, life=2).response > epoch


def test_a_session_begins_with_the_first_heartbeat_of_a_fenced_broker_too(cluster: Cluster) -> None:
    cluster.register(1)
    assert cluster.register(1, life=2).code == 0
    assert cluster.beat(1, offset=-1).response.is_fenced
    assert cluster.register(1, life=3).code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.quorum.run(SESSION_MS)
    assert cluster.register(1, life=3).code == 0


def test_a_new_controller_protects_who_serves_and_who_beats(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.register(2)
    cluster.beat(2, offset=-1)
    cluster.quorum.depose()
    cluster.quorum.elect()
    assert cluster.register(1, life=2).code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.register(2, life=2).code == 0
    cluster.beat(2, offset=-1)
    assert cluster.register(2, life=3).code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_who_does_not_name_its_metadata_version_is_refused() -> None:
    asked = replace(registration_of(1), features={})
    with pytest.raises(KafkaError, match=METADATA_VERSION) as refused:
        check_registration(cluster_of(), asked, kraft_version=0)
    assert refused.value.code == ErrorCode.INVALID_REGISTRATION


def test_a_life_that_takes_over_is_fenced_and_the_old_epoch_is_stale(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.partition(1, 2)
    old = cluster.broker(1).epoch
    for _ in range(3):
        cluster.quorum.run(SESSION_MS // 2)
        cluster.beat(2)
    new = cluster.register(1, life=2).response
    answer = Answer()
    cluster.control.heartbeat(Heartbeat(1, old, 10**6), answer, timeout_ms=1_000)
    cluster.quorum.run(2)
    assert answer.code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.broker(1).epoch == new > old
    assert cluster.broker(1).fenced
    assert cluster.led == (2, 1, (2,))


def test_a_broker_of_another_cluster_is_refused(cluster: Cluster) -> None:
    answer = Answer()
    cluster.control.register("another", registration_of(1), answer)
    cluster.quorum.run(2)
    assert answer.code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "another" in str(answer.outcomes[0].error)


@pytest.mark.parametrize(
    ("features", "kraft_version", "named"),
    [
        ({METADATA_VERSION: (7, 29)}, 0, METADATA_VERSION),
        ({METADATA_VERSION: (7, 30)}, 1, "kraft.version"),
        ({METADATA_VERSION: (7, 30), "group.version": (1, 1)}, 0, "group.version"),
        ({METADATA_VERSION: (7, 30), "kraft.version": (0, 1)}, 1, None),
        ({METADATA_VERSION: (7, 30), "group.version": (0, 1)}, 0, None),
    ],
)
def test_a_broker_that_cannot_do_a_finalised_level_hears_which(
    features: dict[str, tuple[int, int]], kraft_version: int, named: str | None
) -> None:
    asked = replace(registration_of(1), features=features)
    if named is None:
        check_registration(cluster_of(), asked, kraft_version=kraft_version)
        return
    with pytest.raises(KafkaError, match=named) as refused:
        check_registration(cluster_of(), asked, kraft_version=kraft_version)
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("place", [b"", b"p" * 31, b"p" * 40_000])
def test_a_remote_store_whose_place_is_no_hash_is_refused(place: bytes) -> None:
    asked = registration_of(1, store=RemoteStore("rsm:Store", place))
    with pytest.raises(KafkaError, match="hash of 32 bytes") as refused:
        check_registration(cluster_of(), asked, kraft_version=0)
    assert refused.value.code == ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    "log_dirs", [(), (bytes(16),), (bytes(15) + b"\x02",), (b"a" * 16,) * 2, (bytes([102]) * 16,)]
)
def test_log_directories_that_cannot_be_are_refused(log_dirs: tuple[bytes, ...]) -> None:
    asked = replace(registration_of(1), log_dirs=log_dirs)
    with pytest.raises(KafkaError) as refused:
        check_registration(cluster_of(2), asked, kraft_version=0)
    assert refused.value.code == ErrorCode.INVALID_REGISTRATION


# -- heartbeats -----------------------------------------------------------------------------------


def test_a_broker_is_unfenced_when_it_has_read_its_own_registration(cluster: Cluster) -> None:
    epoch = cluster.register(1).response
    assert cluster.beat(1, offset=epoch - 1).response == HeartbeatAnswer(False, True)
    assert cluster.beat(1, offset=epoch, want_fence=True).response == HeartbeatAnswer(True, True)
    assert cluster.broker(1).fenced
    assert cluster.beat(1, offset=epoch).response == HeartbeatAnswer(True, False)
    assert not cluster.broker(1).fenced
    end = cluster.quorum.log_end()
    assert cluster.beat(1).response == HeartbeatAnswer(True, False)
    assert cluster.quorum.log_end() == end, "a heartbeat that changes nothing writes nothing"


def test_a_broker_that_registers_again_must_catch_up_with_that_record(
    cluster: Cluster,
) -> None:
    epoch = cluster.register(1).response
    cluster.register(1, rack="r")
    assert cluster.beat(1, offset=epoch).response == HeartbeatAnswer(False, True)
    assert cluster.beat(1).response == HeartbeatAnswer(True, False)


def test_a_broker_may_ask_to_be_fenced(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.partition(1, 2)
    assert cluster.beat(1, want_fence=True).response == HeartbeatAnswer(True, True)
    assert cluster.led == (2, 1, (2,))


def test_an_unknown_broker_is_told_that_its_epoch_is_stale(cluster: Cluster) -> None:
    answer = Answer()
    cluster.control.heartbeat(Heartbeat(7, 1, 1), answer, timeout_ms=1_000)
    cluster.quorum.run(2)
    assert answer.code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_leads_stops_once_the_others_know_who_leads_now(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.partition(1, 2)
    before = cluster.quorum.log_end()
    stopping = cluster.beat(1, want_shut_down=True)
    assert stopping.response == HeartbeatAnswer(
        True, is_fenced=False, should_shut_down=False, in_controlled_shutdown=True
    )
    assert cluster.led == (2, 1, (2,))
    assert cluster.broker(1).in_controlled_shutdown
    cluster.beat(2, offset=before)
    assert not cluster.beat(1, want_shut_down=True).response.should_shut_down
    cluster.beat(2)
    assert cluster.beat(1, want_shut_down=True).response == HeartbeatAnswer(True, True, True)
    assert cluster.broker(1).fenced
    assert cluster.register(1, life=2).code == 0, "its next life need not wait"


def test_a_stopping_broker_waits_for_the_change_of_leaders_alone(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.partition(1, 2)
    cluster.beat(1, want_shut_down=True)
    moved = cluster.quorum.log_end() - 1
    no_op = ControllerResult((make("NoOpRecord"),), None)
    for _ in range(3):
        cluster.quorum.submit(lambda _: no_op)
        assert not cluster.beat(1, want_shut_down=True).response.should_shut_down
    cluster.beat(2, offset=moved)
    assert cluster.beat(1, want_shut_down=True).response.should_shut_down


def test_a_broker_that_leads_nothing_or_is_alone_stops_without_waiting(cluster: Cluster) -> None:
    cluster.start(1, 2)
    assert cluster.beat(2, want_shut_down=True).response.should_shut_down
    cluster.partition(1)
    assert not cluster.beat(1, want_shut_down=True).response.should_shut_down
    assert cluster.beat(1, want_shut_down=True).response.should_shut_down
    assert cluster.led == (-1, 1, (1,))


def test_a_fenced_broker_may_stop_at_once(cluster: Cluster) -> None:
    cluster.register(1)
    end = cluster.quorum.log_end()
    assert cluster.beat(1, offset=-1, want_shut_down=True).response.should_shut_down
    assert cluster.quorum.log_end() == end


def test_a_new_controller_lets_a_stopping_broker_wait_for_the_others(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.partition(1, 2)
    cluster.beat(1, want_shut_down=True)
    before = cluster.quorum.log_end() - 2
    cluster.quorum.depose()
    cluster.quorum.elect()
    assert not cluster.beat(1, want_shut_down=True).response.should_shut_down
    cluster.beat(2, offset=before)
    assert not cluster.beat(1, want_shut_down=True).response.should_shut_down
    cluster.beat(2)
    assert cluster.beat(1, want_shut_down=True).response.should_shut_down


def test_who_lost_a_directory_leads_nothing_in_it(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.partition(1, 2)
    lost = bytes([101]) * 16
    cluster.register(1, log_dirs=(lost, b"x" * 16))
    cluster.beat(1, offline_log_dirs=(b"?" * 16,))
    assert cluster.led == (1, 0, (1, 2))
    cluster.beat(1, offline_log_dirs=(lost,))
    assert cluster.led == (2, 1, (2,))
    assert cluster.broker(1).log_dirs == (b"x" * 16,)
    end = cluster.quorum.log_end()
    cluster.beat(1, offline_log_dirs=(lost,))
    assert cluster.quorum.log_end() == end


def test_a_fenced_broker_reports_a_lost_directory_before_it_is_unfenced(
    cluster: Cluster,
) -> None:
    cluster.start(2)
    lost = bytes([101]) * 16
    cluster.register(1, log_dirs=(lost, b"x" * 16))
    assert cluster.beat(1, offline_log_dirs=(lost,)).response.is_fenced
    assert not cluster.beat(1, offline_log_dirs=(lost,)).response.is_fenced


@pytest.mark.parametrize("at_once", [False, True])
def test_a_lost_directory_and_a_stop_in_one_heartbeat_leave_nothing(*, at_once: bool) -> None:
    """What is in the directory is not eligible; what is elsewhere is."""
    feature = make("FeatureLevelRecord", name=ELR_VERSION, feature_level=1)
    bootstrap = (*PLAIN.bootstrap, feature)
    rules = ElectionRules(min_isr=2)
    cluster = clustered(replace(PLAIN, bootstrap=bootstrap, election_defaults=rules))
    cluster.start(1, 2)
    cluster.partition(1, 2)
    lost = bytes([101]) * 16
    cluster.register(1, log_dirs=(lost, b"x" * 16))
    if at_once:
        answer = cluster.beat(1, offline_log_dirs=(lost,), want_shut_down=True).response
        assert answer.in_controlled_shutdown
    else:
        cluster.beat(1, offline_log_dirs=(lost,))
    found = cluster.quorum.image.partition("t", 0)
    assert found is not None
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())
    assert cluster.broker(1).log_dirs == (b"x" * 16,)


def test_a_broker_that_lost_its_last_directory_has_none_registered(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.partition(1)
    lost = bytes([101]) * 16
    cluster.beat(1, offline_log_dirs=(lost,))
    assert cluster.led == (-1, 1, (1,))
    assert not cluster.broker(1).works_with(lost)
    end = cluster.quorum.log_end()
    cluster.beat(1, offline_log_dirs=(lost,))
    assert cluster.quorum.log_end() == end


@pytest.mark.parametrize("what", ["its session ends", "it stops", "its disk is lost", "a new life"])
def test_a_broker_that_goes_is_followed_as_the_controllers_properties_say(what: str) -> None:
    rules = ElectionRules(is_unclean=True)
    cluster = clustered(replace(PLAIN, election_defaults=rules))
    cluster.start(1, 2)
    cluster.partition(1, 2, isr=(1,))
    if what == "it stops":
        cluster.beat(1, want_shut_down=True)
    elif what == "its disk is lost":
        cluster.beat(1, offline_log_dirs=(bytes([101]) * 16,))
    else:
        for _ in range(SESSION_MS // 1_000 + 1):
            cluster.quorum.run(1_000)
            cluster.beat(2)
        if what == "a new life":
            assert cluster.register(1, life=2).code == 0
    assert cluster.led == (2, 1, (2,))


# -- sessions -------------------------------------------------------------------------------------


def test_the_end_of_a_session_fences_and_another_in_sync_leads(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.partition(1, 2)
    cluster.beat(1)
    for _ in range(SESSION_MS // 1_000 - 1):
        cluster.quorum.run(1_000)
        cluster.beat(2, ms=0)
    assert cluster.led == (1, 0, (1, 2))
    cluster.quorum.run(1_100)
    assert cluster.led == (2, 1, (2,))
    assert cluster.broker(1).fenced
    assert not cluster.broker(2).fenced
    cluster.quorum.run(2 * SESSION_MS)
    assert cluster.led == (-1, 2, (2,)), "the last in sync stays, and leads nothing"


def test_a_fenced_broker_that_beats_again_is_unfenced_under_its_epoch(cluster: Cluster) -> None:
    cluster.start(1)
    epoch = cluster.broker(1).epoch
    cluster.quorum.run(2 * SESSION_MS)
    assert cluster.broker(1).fenced
    assert cluster.beat(1).response == HeartbeatAnswer(True, False)
    assert cluster.broker(1).epoch == epoch
    cluster.quorum.run(SESSION_MS - 10)
    assert not cluster.broker(1).fenced
    cluster.quorum.run(20)
    assert cluster.broker(1).fenced


def test_sessions_are_whole_again_after_a_change_of_controller(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.quorum.run(SESSION_MS - 100)
    cluster.quorum.depose()
    cluster.quorum.run(SESSION_MS)
    cluster.quorum.elect()
    assert cluster.register(1, life=2).code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.quorum.run(SESSION_MS - 10)
    assert not cluster.broker(1).fenced
    assert not cluster.broker(2).fenced
    cluster.quorum.run(20)
    assert cluster.broker(1).fenced
    assert cluster.broker(2).fenced


def test_the_broker_in_the_controllers_process_has_no_session_to_end() -> None:
    """It sends itself no heartbeats."""
    cluster = clustered(PLAIN, own_broker_id=1)
    cluster.start(1, 2)
    cluster.quorum.depose()
    cluster.quorum.elect()
    cluster.quorum.run(2 * SESSION_MS)
    assert not cluster.broker(1).fenced
    assert cluster.broker(2).fenced, "another one has"


def test_no_heartbeat_is_awaited_of_a_broker_in_the_controllers_process() -> None:
    """It sends none any more once it serves."""
    cluster = clustered(PLAIN, own_broker_id=1)
    cluster.start(1, 2)
    cluster.partition(2)
    cluster.beat(2, want_shut_down=True)
    assert cluster.beat(2, want_shut_down=True).response.should_shut_down


def test_a_heartbeat_that_is_answered_too_late_keeps_the_session_alive() -> None:
    cluster = clustered(replace(PLAIN, uncommitted_bytes_max=1))
    cluster.start(1)
    cluster.quorum.commit_delay_ms = None
    no_op = ControllerResult((make("NoOpRecord"),), None)
    waits = cluster.quorum.submit(lambda _: no_op, timeout_ms=60_000)
    cluster.quorum.run(SESSION_MS - 100)
    late = cluster.beat(1, ms=1_000)
    assert late.code == ErrorCode.REQUEST_TIMED_OUT, "its turn never came"
    assert cluster.quorum.value(TIMED_OUT) == 1
    cluster.quorum.commit()
    assert waits.is_there
    cluster.quorum.run(SESSION_MS - 1_010)
    assert not cluster.quorum.loop.decided_image.brokers[1].fenced
    cluster.quorum.run(20)
    assert cluster.quorum.loop.decided_image.brokers[1].fenced


@pytest.mark.parametrize("turns", [0, 5])
def test_a_heartbeat_that_comes_while_the_end_is_decided_saves_the_broker(
    cluster: Cluster, turns: int
) -> None:
    cluster.start(1)
    cluster.partition(1)
    records = [
        make(
            "PartitionRecord",
            2,
            partition_id=number,
            topic_id=TOPIC_ID,
            replicas=[1],
            isr=[1],
            leader=1,
            directories=[bytes([101]) * 16],
        )
        for number in range(1, 2_000)
    ]
    cluster.quorum.submit(lambda _: ControllerResult(tuple(records), None), timeout_ms=60_000)
    cluster.quorum.run(10)
    epoch = cluster.broker(1).epoch
    beaten = Answer()

    def beat_in_between(left: int = turns) -> None:
        if cluster.quorum.loop.decision_count and left:
            cluster.quorum.ports.scheduler.call_later(0, lambda: beat_in_between(left - 1))
        elif cluster.quorum.loop.decision_count:
            asked = Heartbeat(1, epoch, 10**6)
            cluster.control.heartbeat(asked, beaten, timeout_ms=1_000)
        else:
            cluster.quorum.ports.scheduler.call_later(1, beat_in_between)

    beat_in_between()
    cluster.quorum.run(SESSION_MS + 10)
    assert beaten.response == HeartbeatAnswer(True, False)
    assert cluster.led == (1, 0, (1,)), "it was never fenced in between"


def test_a_life_that_was_taken_over_keeps_no_session_alive(cluster: Cluster) -> None:
    cluster.start(1)
    old_epoch = cluster.broker(1).epoch
    cluster.quorum.run(SESSION_MS + 10)
    assert cluster.register(1, life=2).code == 0
    assert cluster.beat(1).response == HeartbeatAnswer(True, False)
    for _ in range(10):
        cluster.control.heartbeat(Heartbeat(1, old_epoch, 10**6), Answer(), timeout_ms=1_000)
        cluster.quorum.run(SESSION_MS // 9)
    assert cluster.broker(1).fenced, "of the life that is registered nothing was heard"


def test_a_session_that_ends_while_too_much_waits_is_ended_all_the_same() -> None:
    cluster = clustered(replace(PLAIN, decisions_max=1))
    cluster.start(1)
    cluster.quorum.commit_delay_ms = None
    no_op = ControllerResult((make("NoOpRecord"),), None)
    cluster.quorum.submit(lambda _: no_op, timeout_ms=60_000)
    cluster.quorum.run(SESSION_MS + 10)
    assert cluster.quorum.submit(lambda _: no_op).code == ErrorCode.NOT_CONTROLLER
    cluster.quorum.commit()
    cluster.quorum.run(1)
    cluster.quorum.commit()
    assert cluster.broker(1).fenced


def test_a_broker_whose_fencing_was_lost_is_fenced_by_the_next_controller(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.quorum.commit_delay_ms = None
    cluster.quorum.run(SESSION_MS + 10)
    assert cluster.quorum.loop.decided_image.brokers[1].fenced
    cluster.quorum.depose()
    cluster.quorum.commit_delay_ms = 1
    cluster.quorum.elect()
    assert not cluster.broker(1).fenced
    cluster.quorum.run(SESSION_MS + 10)
    assert cluster.broker(1).fenced


def test_a_fencing_that_fails_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from metadata_topic.quorum.active import broker_control

    class Fails:
        def steps(self, *_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

    cluster.start(1)
    monkeypatch.setattr(broker_control, "fence_broker", Fails())
    cluster.quorum.run(SESSION_MS + 10)
    monkeypatch.undo()
    assert not cluster.broker(1).fenced
    cluster.quorum.run(1_000)
    assert cluster.broker(1).fenced


def test_nobody_is_served_elsewhere(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.quorum.depose()
    assert cluster.register(1).code == ErrorCode.NOT_CONTROLLER
    assert cluster.beat(1).code == ErrorCode.NOT_CONTROLLER


def test_of_very_many_sessions_that_end_at_once_some_are_fenced_at_a_time(
    cluster: Cluster,
) -> None:
    ids = range(1, FENCED_AT_ONCE + 51)
    cluster.start(*ids)
    for one in ids:
        cluster.beat(one, ms=0)
    cluster.quorum.run(SESSION_MS // 2)
    counts: set[int] = set()
    for _ in range(SESSION_MS):
        cluster.quorum.run(1)
        counts.add(cluster.quorum.loop.decision_count)
    assert max(counts) <= FENCED_AT_ONCE
    assert [one for one in ids if not cluster.broker(one).fenced] == []


def test_only_a_broker_that_stops_costs_a_look_at_all_others(cluster: Cluster) -> None:
    cluster.start(1, 2)
    asked: list[int] = []

    def lowest() -> int:
        asked.append(1)
        return 10**6

    image = cluster.quorum.image
    session = BrokerSessions(SESSION_MS, image, 0).of(1, cluster.broker(1).epoch)
    beat = Heartbeat(1, cluster.broker(1).epoch, 10**6)
    assert heartbeat(image, beat, session, lowest).records == ()
    assert asked == []
    session.shutdown_offset = 5
    assert heartbeat(image, beat, session, lowest).response.should_shut_down
    assert asked == [1]
