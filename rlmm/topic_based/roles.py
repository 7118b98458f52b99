"""The manager's state per user partition, per metadata partition and per pending write."""

from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_protocol.types import TopicIdPartition
from rlmm.api import Fence
from rlmm.events import MetadataEvent
from rlmm.lifecycle import Verdict
from rlmm.store import PartitionKey, Position, partition_key
from rlmm.topic_based.end_reads import EndReads
from rlmm.topic_based.writes import Writes
from runtime.health_reasons import HEALTHY, HealthText


class Stage(Enum):
    """Progress of owning or following a partition."""

    CATCHING_UP = "catching up"
    BARRIER = "barrier"
    READY = "ready"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Role:
    """This broker's part in one user partition.

    Attributes:
        fence: Fence of its writes; None: it only follows.
        home: The metadata partition of its records.
        metadata_offset: Of the image in which the owner saw the topic, written into its barrier.
        deposed: A higher fence was read.
        superseded: It ends at the engine's next turn; any thread may set it.
        log_start: Log start offset that its records carry once it has settled, -1 before.
        unclean_epoch: Of the last unclean election it knows; its records carry it.
        catching_up: Futures of callers that wait until the end at their call was read.
        asked_ms: Time of the latest such call, -1 before.
    """

    partition: TopicIdPartition
    fence: Fence | None
    done: "Future[None]"
    metadata_offset: int = -1
    home: int = -1
    stage: Stage = Stage.CATCHING_UP
    deposed: bool = False
    superseded: bool = False
    log_start: int = -1
    unclean_epoch: int = -1
    catching_up: "list[Future[None]]" = field(default_factory=list)
    asked_ms: int = -1

    @property
    def is_ready(self) -> bool:
        """True if the state that was read may be used for validation."""
        return self.stage is Stage.READY and not self.deposed and not self.superseded

    def stamped(self, event: MetadataEvent) -> MetadataEvent:
        """The event with the values that each record of this owner carries."""
        stamp = replace(event.stamp, log_start=self.log_start, unclean_epoch=self.unclean_epoch)
        return replace(event, stamp=stamp)

    @property
    def key(self) -> PartitionKey:
        """The user partition's identity."""
        return partition_key(self.partition)


@dataclass(slots=True, eq=False)
class Tracked:
    """A metadata partition that is being read.

    Attributes:
        position: The position in the store.
        roles: In its user partitions that this broker owns or follows.
        without_barrier: Owners among them that have not written their barrier yet, in order.
        led: This broker leads it and removes deleted topics in it.
        caught_up: The end was reached since reading began here. The log confirms the cached state,
            look-ups may be answered and barriers written. Later records may be missing.
        end_reads: Reads to an end that the log had after a call.
        fresh_for_remover: Read to an end that the log had after this broker began to lead it.
        writes: Pending ones, in the order of the calls.
        verdicts: Of records of our writes that were read before their append was answered.
        unreadable: Why reading cannot continue, empty while it can.
    """

    position: Position
    roles: dict[PartitionKey, Role] = field(default_factory=dict)
    without_barrier: "OrderedDict[PartitionKey, Role]" = field(default_factory=OrderedDict)
    led: bool = False
    caught_up: bool = False
    end_reads: EndReads = field(default_factory=EndReads)
    fresh_for_remover: bool = False
    writes: Writes[Role] = field(default_factory=Writes)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    unreadable: HealthText = HEALTHY

    @property
    def may_validate(self) -> bool:
        """True if the remover may use the state that was read."""
        return self.led and self.caught_up and self.fresh_for_remover

    @property
    def is_busy(self) -> bool:
        """True if reading will end some wait.

        An unreadable partition brings nothing before its damage ends, which may take long.
        """
        return not self.unreadable and bool(self.writes or self.end_reads or self.without_barrier)

    def begin(self, role: Role) -> None:
        """Let a role catch up: it has just begun, or its log is in doubt."""
        self.roles[role.key], role.stage = role, Stage.CATCHING_UP
        if role.fence is not None:
            self.without_barrier[role.key] = role
