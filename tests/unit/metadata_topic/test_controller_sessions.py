"""Sessions and heartbeats without a loop."""

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.broker_sessions import BrokerSession, BrokerSessions
from metadata_topic.controller.brokers import Registration, register_broker
from metadata_topic.controller.heartbeats import Heartbeat, heartbeat
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of, registration_of

SESSION_MS = 9_000


def test_the_offset_that_all_active_brokers_have_read() -> None:
    image: MetadataImage = cluster_of(1, 2, 3)
    sessions = BrokerSessions(SESSION_MS, image, 0)
    assert sessions.lowest_active_offset(image, without={1}) == -1
    for broker_id, offset in ((2, 20), (3, 30)):
        session = sessions.get(broker_id, image.brokers[broker_id].epoch)
        assert session is not None
        session.metadata_offset = offset
    assert sessions.lowest_active_offset(image, without={1}) == 20
    assert sessions.lowest_active_offset(image, without={2}) == -1
    assert sessions.lowest_active_offset(cluster_of(1), without={1}) is None
    assert sessions.lowest_active_offset(image, without={2, None}) == -1


def test_a_session_ends_after_its_whole_time_and_not_before() -> None:
    sessions = BrokerSessions(SESSION_MS, cluster_of(1), 100)
    epoch = cluster_of(1).brokers[1].epoch
    assert sessions.next_end_ms(100) == 101 + SESSION_MS
    assert sessions.is_live(1, epoch, 100 + SESSION_MS)
    assert not sessions.is_live(1, epoch, 101 + SESSION_MS)
    assert not sessions.is_live(1, epoch + 1, 100)
    assert sessions.ended(100 + SESSION_MS) == []
    assert sessions.ended(101 + SESSION_MS) == [(1, epoch)]
    assert sessions.next_end_ms(101 + SESSION_MS) is None


def test_a_heartbeat_of_another_life_is_refused_without_the_loop() -> None:
    image = cluster_of(1)
    asked = Heartbeat(1, image.brokers[1].epoch - 1, 10)
    with pytest.raises(KafkaError) as refused:
        heartbeat(image, asked, BrokerSession(0, 0, 0), lambda: None)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_registration_twice_keeps_a_shutdown() -> None:
    image = cluster_of(1)
    epoch = image.brokers[1].epoch
    image = apply(
        image,
        [
            make(
                "BrokerRegistrationChangeRecord",
                1,
                broker_id=1,
                broker_epoch=epoch,
                in_controlled_shutdown=1,
            )
        ],
    )
    asked: Registration = registration_of(1)
    image = apply(image, register_broker(image, asked).records)
    assert image.brokers[1].in_controlled_shutdown
    assert image.brokers[1].epoch == epoch
