"""The shared state of the partitions led by this broker: their clock, and the watch over ISRs.

All led partitions with followers are reviewed twice per `replica.lag.time.max.ms`, in slices:
lagging members are proposed to leave, and followers that may join are proposed. The same pass runs
when brokers change in the metadata: a fenced broker may be eligible again.

A broker that stood still (a suspended process, a stall) has received no Fetch meanwhile. It must
not take its own pause for silence of its followers: all lag clocks begin again after a gap.
"""

from collections.abc import Callable, Collection
from typing import Final, Generic, Protocol, TypeVar

from broker.replica.isr import NO_EPOCH, Lack
from broker.replica.nearest import SentElsewhere
from local_log.log.partition_log import PartitionLog
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.image.image import MetadataImage
from runtime.clock import Clock
from runtime.metrics import Counter
from runtime.ports import Ports
from runtime.scheduler import Timer
from runtime.work import Runner, Steps, logged

SLICE: Final = 50
"""Partitions in one iteration of the event loop."""


class Led(Protocol):
    """A partition that is led here and has followers."""

    def review(self, now_ms: int) -> None:
        """Let lagging members leave the ISR, and propose followers that may join."""


P = TypeVar("P", bound=Led)


class Leading(Generic[P]):
    """The shared state of the partitions that this broker leads.

    Attributes:
        led: Partitions with followers that are led here, in order of arrival.
        lacking: All that are led here and lack something, in the order in which that began.
        clocks_begun_ms: End of this broker's last pause, on the monotonic clock.
        propose: Hands a partition's proposal on to the controller; returns at once.
        shrinks, expands: Count ISRs that leaders here proposed and that were committed.
        failures: Counts proposals that the controller answered with an error.
        sent_elsewhere: Consumers of led partitions that read from a follower.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        lag_ms_max: Callable[[], int],
        bootstrap_hold_ms: int,
    ) -> None:
        """Lead nothing yet.

        Args:
            ports: Clock and timers.
            image: The committed metadata.
            broker_epoch: Of this incarnation of this broker.
            lag_ms_max: `replica.lag.time.max.ms` now.
            bootstrap_hold_ms: `tidemark.follower.bootstrap.hold.ms`.
        """
        self.led: dict[P, None] = {}
        self.lacking: dict[Lack, dict[P, None]] = {lack: {} for lack in Lack}
        self.clocks_begun_ms = -(2**62)
        self.propose: Callable[[P], None] = _nowhere
        self.shrinks: Counter | None = None
        self.expands: Counter | None = None
        self.failures: Counter | None = None
        self.sent_elsewhere = SentElsewhere()
        self.broker_epoch, self.lag_ms_max = broker_epoch, lag_ms_max
        self._bootstrap_hold_ms = bootstrap_hold_ms
        self._image, self._scheduler = image, ports.scheduler
        self._clock: Clock = ports.clock
        self._awake_ms = self.now_ms()
        self._beats = 0
        self._is_due = False
        self._timer: Timer | None = None
        self._runner = Runner(self._look, ports.scheduler, failed=logged("in-sync replicas"))

    def now_ms(self) -> int:
        """The monotonic clock of all times of followers."""
        return self._clock.monotonic_ms()

    def since_ms(self) -> int:
        """A follower that was caught up at this time, or later, keeps pace."""
        return self.now_ms() - self.lag_ms_max()

    def hold(self, log: PartitionLog, start_offset: int) -> None:
        """Keep the local segments that end above an offset for a while, by `LocalHold`."""
        now_ms = self._clock.wall_ms()  # retention compares with wall time
        log.hold.begin(start_offset, now_ms=now_ms, for_ms=self._bootstrap_hold_ms)

    def is_eligible(self, replica: ReplicaId, broker_id: int, broker_epoch: int) -> bool:
        """True if the metadata let a replica on this incarnation of a broker into an ISR.

        The controller has the same rules: it would refuse a proposal with another replica.

        DIFFERS: a Kafka leader does not check the log directory. It waits for a replica whose
        directory has failed, and so does acks=all, for `replica.lag.time.max.ms`.

        Source: KIP-841 (fenced brokers), KIP-903 (broker epochs), KIP-858 (directories).
        """
        image = self._image()
        broker, topic = image.brokers.get(broker_id), image.topics_by_id.get(replica.topic_id)
        partition = None if topic is None else topic.partitions.get(replica.partition)
        return (
            broker is not None
            and broker.is_active
            and broker_epoch in (broker.epoch, NO_EPOCH)
            and partition is not None
            and broker_id in partition.replicas
            and broker.works_with(partition.directory_of(broker_id))
        )

    @property
    def has_elr(self) -> bool:
        """True if eligible leader replicas are finalised."""
        return self._image().elr_enabled

    def registered_epoch(self, broker_id: int) -> int:
        """Broker epoch of the registered incarnation of a broker; -1: none."""
        broker = self._image().brokers.get(broker_id)
        return NO_EPOCH if broker is None else broker.epoch

    def note(self, one: P, lacks: Collection[Lack]) -> None:
        """Record exactly these lacks for a partition."""
        for lack, found in self.lacking.items():
            if lack in lacks:
                found[one] = None
            else:
                found.pop(one, None)

    def count(self, before: int, after: int) -> None:
        """Count a committed change of an ISR from `before` to `after` members."""
        counter = self.shrinks if after < before else self.expands
        if counter is not None and after != before:
            counter.inc()

    def count_failed(self) -> None:
        """Count an error of the controller in answer to a proposed ISR."""
        if self.failures is not None:
            self.failures.inc()

    # -- the watch

    def start(self) -> None:
        """Begin the periodic review."""
        self._awake_ms = self.now_ms()
        self._beat()

    async def stop(self) -> None:
        """End the periodic review."""
        if self._timer is not None:
            self._timer.cancel()
        await self._runner.stop()

    def review_soon(self) -> None:
        """Review all led partitions soon: brokers have changed in the metadata."""
        if self.led:
            self._is_due = True  # a running pass may have reviewed some before the change
            self._runner.start()

    def _beat(self) -> None:
        quarter_ms = max(self.lag_ms_max() // 4, 1)
        self._timer = self._scheduler.call_later(quarter_ms, self._beat)
        self._note_awake()
        self._beats += 1
        if self._beats % 2 == 0:
            self.review_soon()

    def _note_awake(self) -> int:
        now_ms = self.now_ms()
        if now_ms - self._awake_ms > self.lag_ms_max() // 2:
            self.clocks_begun_ms = now_ms
        self._awake_ms = now_ms
        return now_ms

    def _look(self) -> Steps[None]:
        while self._is_due:
            self._is_due = False
            now_ms = self._note_awake()
            for count, one in enumerate(list(self.led), 1):
                if one in self.led:
                    one.review(now_ms)
                if count % SLICE == 0:
                    yield
                    now_ms = self._note_awake()


def _nowhere(_led: Led) -> None:
    """Drop a proposal: the broker has no way to the controller yet."""
