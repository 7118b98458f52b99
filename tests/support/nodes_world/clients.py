"""Clients that ask brokers for changes, which forward them; what they are told must be so.

Each change carries its number in a setting, so that a committed record names the call that made it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker.node.active_controller import IMAGE_MS
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.image.image import ResourceType
from metadata_topic.image.records import MetadataRecord
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.liveness import LOOK_US

if TYPE_CHECKING:
    from tests.support.nodes_world.node import ClusterNode
    from tests.support.nodes_world.world import NodesWorld

_NUMBERED = frozenset({"retention.ms", "segment.ms"})
NUMBERS = 10_000_000
"""Added to a call's number; it is in milliseconds and no default of Kafka's."""
GRACE_MS = 1_000
"""Of the way, see `broker.handlers.forwarded`."""
SLACK_MS = 3_000
"""Timers of a process that is busy, and of one whose disk is slow."""
_KINDS = (*(ApiKey.CREATE_TOPICS,) * 4, *(ApiKey.DELETE_TOPICS,) * 3,
          *(ApiKey.INCREMENTAL_ALTER_CONFIGS,) * 2)  # fmt: skip
VERSIONS = {
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
}
_DONE = ErrorCode.NONE
_UNCLEAR = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
_NOT_DONE = {
    ApiKey.CREATE_TOPICS: {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR},
    ApiKey.DELETE_TOPICS: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
}


@dataclass(eq=False, slots=True)
class Asked:
    """One request of a client.

    Attributes:
        asked_us: when it came to the broker, by the timeline.
        made: ids of the topics, or offsets of the settings, that committed records name it for.
        epoch: of the controller that made it last.
        code: of the answer; None before, and where none is known.
    """

    number: int
    api_key: ApiKey
    name: str
    timeout_ms: int
    node: "ClusterNode"
    life: int
    asked_us: int = 0
    made: list[int] = field(default_factory=list)
    epoch: int = -1
    topic_id: bytes | None = None
    code: ErrorCode | None = None

    @property
    def patience_us(self) -> int:
        """So long after it came, or its broker continued, there must be an answer."""
        return self.node.span_us(self.timeout_ms + GRACE_MS + IMAGE_MS + SLACK_MS)

    def __str__(self) -> str:
        code = "-" if self.code is None else self.code.name
        return f"call {self.number} {self.api_key.name} {self.name} at {self.node}: {code}"


class Askers:
    """See the module.

    Attributes:
        removed: ids of topics whose removal is committed.
    """

    def __init__(self, world: "NodesWorld") -> None:
        self.world = world
        self.calls: list[Asked] = []
        self.removed: set[bytes] = set()
        self._offsets: dict[bytes, int] = {}  # where a topic, by id, was committed
        self._removed_at: dict[bytes, int] = {}
        self._ids: dict[str, bytes] = {}
        self._open: dict[int, Asked] = {}
        self._next_us = 0
        self._is_over = False
        self.told: dict[str, int] = defaultdict(int)
        world.oracle.listeners.append(self._committed)

    def start(self) -> None:
        """Let each begin."""
        for client in range(self.world.plan.askers):
            self._think(client)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_over = True

    # -- asking

    def _think(self, client: int) -> None:
        world, plan = self.world, self.world.plan
        pause_us = 1 + int(world.work_rng.random() * 2_000 * plan.ask_every_ms * plan.askers)
        if not self._is_over:
            world.at(world.now_us + pause_us, self._ask, client)

    def _ask(self, client: int) -> None:
        world, rng = self.world, self.world.work_rng
        serving = [
            one for one in world.brokers
            if one.broker is not None and one.broker.serves and not one.closing
        ]  # fmt: skip
        if self._is_over or not serving:
            self._think(client)
            return
        api_key = _KINDS[int(rng.random() * len(_KINDS))]
        name = f"t{int(rng.random() * world.plan.names)}"
        node = serving[int(rng.random() * len(serving))]
        has_time = api_key is not ApiKey.INCREMENTAL_ALTER_CONFIGS
        timeout_ms = world.plan.patience_ms if has_time else DECISION_TIMEOUT_MS
        call = Asked(len(self.calls), api_key, name, timeout_ms, node, node.life)
        self.calls.append(call)
        world.at_node(world.net.arrival(), node, node.on_loop, lambda: self._arrives(call))
        self._think(client)

    def _arrives(self, call: Asked) -> None:
        process = call.node.process
        assert process is not None
        call.asked_us = self.world.now_us
        self._open[call.number] = call
        process.loop.begin(self._serve(call))

    async def _serve(self, call: Asked) -> None:
        broker = call.node.broker
        assert broker is not None
        version = VERSIONS[call.api_key]
        answer = await broker.serve(call.api_key, version, request_of(call))
        self._answered(call, answer)

    # -- validating

    def _answered(self, call: Asked, answer: Any) -> None:
        self._open.pop(call.number, None)
        (one,) = next(
            getattr(answer, name) for name in ("topics", "responses") if hasattr(answer, name)
        )
        call.code = code = ErrorCode.of(one.error_code)
        self.told[code.name] += 1
        self.world.tell(f"{call}")
        if code == _DONE:
            self._is_done(call, one)
        elif code in _NOT_DONE[call.api_key]:
            is_there = call.api_key is ApiKey.CREATE_TOPICS and call.made
            is_of_now = call.epoch == self.world.oracle.newest_epoch
            if is_there and is_of_now and self._ids.get(call.name) == call.topic_id:
                self._breaks("a change is refused for itself", call)
        elif code not in _UNCLEAR:
            self._breaks("a failure is one that is known", call)

    def _is_done(self, call: Asked, one: Any) -> None:
        """It is committed, and in the image of the broker that said so."""
        if call.api_key is ApiKey.CREATE_TOPICS:
            place = self._offsets.get(one.topic_id)
            is_own = one.topic_id == call.topic_id
        elif call.api_key is ApiKey.DELETE_TOPICS:
            place, is_own = self._removed_at.get(one.topic_id), True
        else:
            place, is_own = (call.made or [None])[-1], True
        if place is None or not is_own:
            self._breaks("success means that it is committed", call)
            return
        image_end = call.node.metadata.image.provenance.end_offset
        late_us = call.asked_us + call.node.span_us(IMAGE_MS)
        continues = call.node.metadata.failure is None and not call.node.closing
        if continues and image_end <= place and self.world.now_us < late_us:
            self._breaks(
                "who made a change sees it", call, f"image to {image_end}, change at {place}"
            )

    def look(self) -> None:
        """Each call at a broker that lives is answered in its time."""
        now_us = self.world.now_us
        if now_us < self._next_us:
            return
        self._next_us = now_us + LOOK_US
        for number, call in list(self._open.items()):
            node = call.node
            if node.life != call.life or node.closing:
                del self._open[number]
            elif max(node.paused_until, call.asked_us) + call.patience_us < now_us:
                raise Violation("every call is answered in its time", f"{call}")

    def _breaks(self, rule: str, call: Asked, more: str = "") -> None:
        self.world.breaks(rule, f"{call} {more}")

    # -- what is committed

    def _committed(self, epoch: int, offset: int, record: MetadataRecord) -> None:
        value = record.value
        if record.name == "TopicRecord":
            self._ids[value.name] = value.topic_id
            self._offsets[value.topic_id] = offset
        elif record.name == "RemoveTopicRecord":
            self.removed.add(value.topic_id)
            self._removed_at[value.topic_id] = offset
        elif record.name == "ConfigRecord" and value.name in _NUMBERED:
            number = int(value.value or 0) - NUMBERS
            if number >= 0:
                self._made(self.calls[number], epoch, offset)

    def _made(self, call: Asked, epoch: int, offset: int) -> None:
        """As in Kafka, the next controller is asked again what a deposed one had begun."""
        call.topic_id = self._ids[call.name]
        call.made.append(offset)
        if call.epoch == epoch:
            raise Violation("a controller makes a change once", f"{call}: {call.made}")
        call.epoch = epoch
        if call.code in _NOT_DONE[call.api_key]:
            raise Violation("what was refused is in no image", f"{call}")

    def validate_whole(self) -> None:
        """A topic has all its partitions, or is not there."""
        for topic in self.world.oracle.reference.topics_by_id.values():
            if not topic.partitions:
                raise Violation("a decision counts as a whole", f"{topic.name}")


def request_of(call: Asked) -> Any:
    """What a client sends."""
    cls = request(call.api_key).cls
    number = str(NUMBERS + call.number)
    if call.api_key is ApiKey.CREATE_TOPICS:
        config = cls.Topics.Configs(name="retention.ms", value=number)
        partitions = 1 + call.number % 3
        topic = cls.Topics(
            name=call.name, num_partitions=partitions, replication_factor=1, configs=[config]
        )
        return cls(topics=[topic], timeout_ms=call.timeout_ms)
    if call.api_key is ApiKey.DELETE_TOPICS:
        return cls(topics=[cls.Topics(name=call.name)], timeout_ms=call.timeout_ms)
    changed = cls.Resources.Configs(name="segment.ms", config_operation=0, value=number)
    resource = cls.Resources(
        resource_type=int(ResourceType.TOPIC), resource_name=call.name, configs=[changed]
    )
    return cls(resources=[resource])
