"""An operator who gives partitions other replicas, also while they are moved already."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.quorum_world.errors import Violation

if TYPE_CHECKING:
    from tests.support.replication_world.clients import DataClients
    from tests.support.replication_world.validator import Told

REPLICAS_MIN = 2
"""As many as have what is acknowledged."""
REPLICAS_MAX = 4
TIMEOUT_MS = 1_500
KNOWN = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Mover:
    """See the module."""

    def __init__(self, clients: "DataClients") -> None:
        self.clients, self.world = clients, clients.world

    def move(self, number: int) -> None:
        """Ask for something; the `number` of a fault decides what."""
        rng = Random(f"replication-move-{self.world.plan.seed}-{number}")
        known = list(self.world.validator.partitions.values())
        if not known:
            return
        told = rng.choice(known)
        image = told.image
        if (image.adding or image.removing) and rng.random() < 0.3:
            self.ask(told, None)
        else:
            self.ask(told, self._target(told, rng))

    def _target(self, told: "Told", rng: Random) -> tuple[int, ...]:
        """One replica more, one less, one for another, or all of them others."""
        image, ids = told.image, self.world.plan.broker_ids
        settled = [one for one in image.replicas if one not in image.removing]
        others = [one for one in ids if one not in settled]
        rng.shuffle(others)
        rng.shuffle(settled)
        deed = rng.choice(("add", "remove", "swap", "swap", "swap", "all", "all"))
        if deed == "add":
            wanted = [*settled, *others[:1]]
        elif deed == "remove":
            wanted = settled[1:]
        elif deed == "swap":
            wanted = [*settled[1:], *others[:1]]
        else:
            wanted = [*others, *settled][: rng.choice((2, 3))]
        wanted = wanted[:REPLICAS_MAX]
        if len(wanted) < REPLICAS_MIN:
            wanted = settled
        rng.shuffle(wanted)
        return tuple(wanted)

    def ask(self, told: "Told", replicas: Sequence[int] | None) -> None:
        """Ask for these replicas, None: for those of before; whatever comes of it."""
        node, rules = self.clients.line.some_broker(), self.world.move_rules
        if node is None:
            return
        rules.asks(told, replicas)
        cls = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS).cls
        wanted = None if replicas is None else list(replicas)
        name = told.name
        part = cls.Topics.Partitions(partition_index=name.partition, replicas=wanted)
        topic = cls.Topics(name=name.topic, partitions=[part])
        question = cls(topics=[topic], timeout_ms=TIMEOUT_MS)

        def heard(answer: Any) -> None:
            if answer is None:
                return
            part = answer.responses[0].partitions[0]
            code = ErrorCode.of(part.error_code)
            deed = "cancel" if replicas is None else "move"
            self.clients.line.answers[f"{deed} {code.name}"] += 1
            if code not in KNOWN:
                what = f"{told}: {replicas}: {code.name}: {part.error_message}"
                raise Violation("a move fails in a way that is known", what)
            if code == ErrorCode.NONE:
                rules.is_answered(told, replicas)

        self.clients.line.ask(node, ApiKey.ALTER_PARTITION_REASSIGNMENTS, question, heard)
