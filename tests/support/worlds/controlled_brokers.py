"""Brokers beside an active controller whose quorum is a list in memory."""

from dataclasses import dataclass, replace
from typing import Any

from metadata_topic.controller.heartbeats import Heartbeat, HeartbeatAnswer
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.records import make
from metadata_topic.quorum.active.broker_control import BrokerControl
from metadata_topic.quorum.active.ports import ControllerSettings
from tests.support.samples.metadata import registration_of
from tests.support.worlds.naive_quorum import Answer, NaiveQuorum

SESSION_MS = 9_000
TOPIC_ID = b"t" * 16
TIMED_OUT = "kafka_controller_KafkaController_TimedOutBrokerHeartbeatCount"


@dataclass
class Cluster:
    """A quorum with the brokers' side of its controller."""

    quorum: NaiveQuorum
    control: BrokerControl

    def register(self, broker_id: int, *, life: int = 1, **changes: Any) -> Answer:
        registration = replace(registration_of(broker_id, life=life), **changes)
        answer = Answer()
        self.control.register("cluster", registration, answer)
        self.quorum.run(2)
        return answer

    def beat(
        self, broker_id: int, *, ms: int = 2, offset: int | None = None, **said: Any
    ) -> Answer:
        epoch = self.broker(broker_id).epoch
        offset = self.quorum.log_end() if offset is None else offset
        answer = Answer()
        asked = replace(Heartbeat(broker_id, epoch, offset), **said)
        self.control.heartbeat(asked, answer, timeout_ms=1_000)
        self.quorum.run(ms)
        return answer

    def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert self.register(broker_id).code == 0
            assert self.beat(broker_id).response == HeartbeatAnswer(True, False)

    def broker(self, broker_id: int) -> Any:
        return self.quorum.image.brokers[broker_id]

    def partition(self, *replicas: int, isr: tuple[int, ...] | None = None) -> None:
        """Make topic `t` with one partition, led by the first replica."""
        records = (
            make("TopicRecord", name="t", topic_id=TOPIC_ID),
            make(
                "PartitionRecord",
                2,
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=list(replicas),
                isr=list(isr or replicas),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes([100 + one]) * 16 for one in replicas],
            ),
        )
        answer = self.quorum.submit(lambda _: ControllerResult(records, None))
        self.quorum.run(2)
        assert answer.code == 0

    @property
    def led(self) -> tuple[int, int, tuple[int, ...]]:
        """Leader, leader epoch and ISR of the partition."""
        found = self.quorum.image.partition("t", 0)
        assert found is not None
        return found.leader, found.leader_epoch, found.isr


def clustered(settings: ControllerSettings, *, own_broker_id: int | None = None) -> Cluster:
    quorum = NaiveQuorum(settings)
    control = BrokerControl(
        quorum.loop,
        quorum.world,
        cluster_id="cluster",
        session_timeout_ms=SESSION_MS,
        own_broker_id=own_broker_id,
    )
    quorum.elect()
    quorum.run(2)
    return Cluster(quorum, control)
