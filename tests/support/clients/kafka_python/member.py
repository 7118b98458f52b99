"""kafka-python as a member of a group."""

import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from kafka import KafkaAdminClient, KafkaConsumer  # noqa: E402
from kafka import TopicPartition as Partition  # noqa: E402
from kafka.consumer.subscription_state import ConsumerRebalanceListener  # noqa: E402
from kafka.coordinator.assignors.cooperative_sticky import (  # noqa: E402
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: E402
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # noqa: E402
from kafka.coordinator.assignors.sticky.sticky_assignor import (  # noqa: E402
    StickyPartitionAssignor,
)
from kafka.errors import KafkaError  # noqa: E402
from kafka.structs import OffsetAndMetadata  # noqa: E402

from tests.support.clients.wire import Commands, Owned, say  # noqa: E402

STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def pairs(partitions: Any) -> list[tuple[str, int]]:
    return [(one.topic, one.partition) for one in partitions]


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells of what is given and taken."""

    def __init__(self, owned: Owned) -> None:
        self.owned = owned

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.owned.assigned(pairs(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.owned.gone("revoked", pairs(revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self.owned.gone("lost", pairs(lost))


class Member:
    """One consumer."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.owned = Owned()
        self.consumer: Any = None

    def subscribe(self, command: dict[str, Any]) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=command["group"],
            group_instance_id=command.get("instance"),
            partition_assignment_strategy=[STRATEGIES[command.get("strategy") or "range"]],
            session_timeout_ms=command.get("session_ms", 6_000),
            heartbeat_interval_ms=500,
            auto_offset_reset=command.get("reset", "earliest"),
            enable_auto_commit=False,
            metadata_max_age_ms=1_000,
        )
        listener = Listener(self.owned)
        if command.get("topics"):
            self.consumer.subscribe(topics=command["topics"], listener=listener)
        else:
            self.consumer.subscribe(pattern=command["pattern"], listener=listener)

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=50).values():
            for one in records:
                self.owned.record(one.topic, one.partition, one.offset, one.value)

    def commit(self, command: dict[str, Any]) -> None:
        offsets = self.owned.to_commit(command)
        asked = {Partition(t, p): OffsetAndMetadata(o, m, -1) for t, p, o, m in offsets}
        error = None
        try:
            if asked:
                self.consumer.commit(asked)
        except KafkaError as refused:
            error = type(refused).__name__
        say("committed", offsets=offsets, error=error)

    def committed(self, command: dict[str, Any]) -> None:
        found = []
        for topic, partition in command["partitions"]:
            one = self.consumer.committed(Partition(topic, partition), metadata=True)
            found.append(
                (topic, partition, -1 if one is None else one.offset, one.metadata if one else "")
            )
        say("offsets", offsets=found)

    def admin(self, command: dict[str, Any]) -> None:
        answer, error = None, None
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            answer = self._admin(admin, command)
        except KafkaError as refused:
            error = type(refused).__name__
        finally:
            admin.close()
        say("admin", what=command["what"], answer=answer, error=error)

    def _admin(self, admin: Any, command: dict[str, Any]) -> Any:
        group = command.get("group", "")
        match command["what"]:
            case "list":
                return [[one["group_id"], one.get("group_state")] for one in admin.list_groups()]
            case "describe":
                one = admin.describe_groups([group])[group]
                return {"state": one["group_state"], "members": len(one["members"])}
            case "delete":
                return _worst(admin.delete_groups([group]))
            case "offsets":
                found = admin.list_group_offsets({group: None})[group]
                return [[p.topic, p.partition, o.offset, o.metadata] for p, o in found.items()]
            case "alter":
                wanted = {
                    Partition(t, p): OffsetAndMetadata(o, m, -1)
                    for t, p, o, m in command["offsets"]
                }
                return _worst(admin.alter_group_offsets(group, wanted))
            case "delete_offsets":
                gone = [Partition(t, p) for t, p in command["partitions"]]
                return _worst(admin.delete_group_offsets(group, gone))
        return None


def _worst(results: dict[Any, Any]) -> None:
    """Raise the error of the first entry that has one."""
    for one in results.values():
        error = one if isinstance(one, KafkaError) else None
        if isinstance(one, type) and issubclass(one, KafkaError) and one.__name__ != "NoError":
            error = one()
        if isinstance(one, str) and one not in ("OK", "NoError"):
            error = KafkaError(one)
        if error is not None and type(error).__name__ != "NoError":
            raise error


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
                    member.consumer.close(autocommit=False)
                say("closed")
                return
        if member.consumer:
            member.poll()


main()
