"""What the manager keeps per user partition, per metadata partition and per write under way."""

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
    """How far owning or following a partition has come."""

    CATCHING_UP = "catching up"
    BARRIER = "barrier"
    READY = "ready"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Role:
    """This broker's part in one user partition.

    Attributes:
        fence: the pair it writes under; None: it only follows.
        home: the metadata partition that holds its records.
        metadata_offset: of the image the owner saw the topic in, written into its barrier.
        deposed: a higher fence than ours was read.
        superseded: it ends at the engine's next turn; any thread may say so.
        log_start: what its records carry since it has settled, -1 before.
        unclean_epoch: of the last unclean election it knows of; its records carry it.
        catching_up: of callers that wait until all is read that was there at their call.
        asked_ms: when the last of them came, -1 before.
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
        """Whether what was read may be validated by."""
        return self.stage is Stage.READY and not self.deposed and not self.superseded

    def stamped(self, event: MetadataEvent) -> MetadataEvent:
        """The event with what each record of this owner carries."""
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
        position: what is in the store.
        roles: in its user partitions that this broker owns or follows.
        without_barrier: owners among them that have not written their barrier yet, in order.
        led: this broker leads it and removes deleted topics in it.
        caught_up: the end was reached since reading began here: the log confirms what is cached,
            look-ups may be answered and barriers written. It says nothing of what came later.
        end_reads: reads to an end that the log had after somebody asked.
        fresh_for_remover: read to an end that the log had after this broker began to lead it.
        writes: under way, in the order of the calls.
        verdicts: of records of our writes that were read before their append was answered.
        unreadable: why it cannot be read on, empty while it can.
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
        """Whether the remover may validate by what was read."""
        return self.led and self.caught_up and self.fresh_for_remover

    @property
    def is_busy(self) -> bool:
        """Whether something is waited for that reading brings on.

        Of an unreadable one nothing comes before its damage ends, which may last.
        """
        return not self.unreadable and bool(self.writes or self.end_reads or self.without_barrier)

    def begin(self, role: Role) -> None:
        """A role is to catch up, as one that was just taken or whose log is in doubt."""
        self.roles[role.key], role.stage = role, Stage.CATCHING_UP
        if role.fence is not None:
            self.without_barrier[role.key] = role
