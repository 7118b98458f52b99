"""confluent-kafka (librdkafka) as a member of a group."""

import sys
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient

from tests.support.clients.wire import Commands, Owned, say


def pairs(partitions: list[Partition]) -> list[tuple[str, int]]:
    return [(one.topic, one.partition) for one in partitions]


def code(error: KafkaError) -> str:
    return str(error.name())


class Unsupported(Exception):
    """The library has no such call."""


class Member:
    """One consumer."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.owned = Owned()
        self.consumer: Any = None

    def subscribe(self, command: dict[str, Any]) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": command["group"],
            "partition.assignment.strategy": command.get("strategy") or "range",
            "session.timeout.ms": command.get("session_ms", 6_000),
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": command.get("reset", "earliest"),
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 0,
        }
        if command.get("instance"):
            settings["group.instance.id"] = command["instance"]
        self.consumer = Consumer(settings)
        topics = command.get("topics") or [command["pattern"]]
        self.consumer.subscribe(
            topics,
            on_assign=lambda it, new: self.owned.assigned(pairs(new), member=it.memberid()),
            on_revoke=lambda _, gone: self.owned.gone("revoked", pairs(gone)),
            on_lost=lambda _, gone: self.owned.gone("lost", pairs(gone)),
        )

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        if message.error():
            say("error", error=code(message.error()))
            return
        self.owned.record(message.topic(), message.partition(), message.offset(), message.value())

    def commit(self, command: dict[str, Any]) -> None:
        offsets = self.owned.to_commit(command)
        asked = [Partition(t, p, o, metadata=m) for t, p, o, m in offsets]
        error = None
        try:
            done = self.consumer.commit(offsets=asked, asynchronous=False) if asked else []
            error = next((code(one.error) for one in done if one.error), None)
        except KafkaException as refused:
            error = code(refused.args[0])
        say("committed", offsets=offsets, error=error)

    def committed(self, command: dict[str, Any]) -> None:
        asked = [Partition(t, p) for t, p in command["partitions"]]
        done = self.consumer.committed(asked, timeout=20)
        say(
            "offsets",
            offsets=[(o.topic, o.partition, max(o.offset, -1), o.metadata or "") for o in done],
        )

    def admin(self, command: dict[str, Any]) -> None:
        answer, error = None, None
        try:
            answer = self._admin(command)
        except KafkaException as refused:
            error = code(refused.args[0])
        except Unsupported:
            error = "unsupported"
        say("admin", what=command["what"], answer=answer, error=error)

    def _admin(self, command: dict[str, Any]) -> Any:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        group = command.get("group", "")
        match command["what"]:
            case "list":
                listed = admin.list_consumer_groups().result()
                return [[one.group_id, one.state.name] for one in listed.valid]
            case "describe":
                one = admin.describe_consumer_groups([group])[group].result()
                return {"state": one.state.name, "members": len(one.members)}
            case "delete":
                return admin.delete_consumer_groups([group])[group].result()
            case "offsets":
                asked = [ConsumerGroupTopicPartitions(group)]
                done = admin.list_consumer_group_offsets(asked)[group].result()
                return [[o.topic, o.partition, o.offset, o.metadata] for o in done.topic_partitions]
            case "alter":
                wanted = [Partition(t, p, o) for t, p, o, _ in command["offsets"]]
                asked = [ConsumerGroupTopicPartitions(group, wanted)]
                done = admin.alter_consumer_group_offsets(asked)[group].result()
                error = next((one.error for one in done.topic_partitions if one.error), None)
                if error is not None:
                    raise KafkaException(error)
                return None
        raise Unsupported


def main() -> None:
    member = Member(sys.argv[1])
    commands = Commands()
    while True:
        command = commands.next() if member.consumer else commands.wait()
        match command and command["do"]:
            case "subscribe":
                member.subscribe(command)
            case "commit":
                member.commit(command)
            case "committed":
                member.committed(command)
            case "admin":
                member.admin(command)
            case "close" | "end":
                if member.consumer:
                    member.consumer.close()
                say("closed")
                return
        if member.consumer:
            member.poll()


main()
