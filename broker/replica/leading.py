"""What the partitions led by this broker have in common: their clock, and the watch over ISRs.

Twice in `replica.lag.time.max.ms` all led partitions with followers are looked at, in steps:
members that lag are asked to leave, and followers that may join by now are asked for. The same pass
runs when the metadata say something new of brokers: who was fenced may be eligible again.

A broker that stood still (a suspended process, a stall) has heard no Fetch meanwhile. It must not
take its own silence for that of its followers: all lag clocks begin again after a gap.
"""

from collections.abc import Callable, Collection
from typing import Final, Generic, Protocol, TypeVar

from broker.replica.isr import NO_EPOCH, Lack
from broker.replica.nearest import SentElsewhere
from local_log.log.partition_log import PartitionLog
from metadata_topic.image.image import MetadataImage
from runtime.clock import Clock
from runtime.metrics import Counter
from runtime.ports import Ports
from runtime.scheduler import Timer
from runtime.work import Runner, Steps, logged

SLICE: Final = 50
"""Partitions that are looked at in one iteration of the loop."""


class Led(Protocol):
    """A partition that is led here and has followers."""

    def review(self, now_ms: int) -> None:
        """Let members leave that lag, and ask for followers that may join."""


P = TypeVar("P", bound=Led)


class Leading(Generic[P]):
    """See the module.

    Attributes:
        led: partitions with followers that are led here, in the order in which they came.
        lacking: all that are led here and lack something, in the order in which they began to.
        clocks_begun_ms: when this broker last came back from a gap of its own.
        propose: hands a partition's proposal on to the controller; returns at once.
        shrinks, expands: count ISRs that leaders here have asked for, and that are committed.
        failures: counts those that the controller has answered with an error.
        sent_elsewhere: consumers of led partitions that read from a follower.
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
            ports: clock and timers.
            image: the committed metadata.
            broker_epoch: of this incarnation of this broker.
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
        """The clock of all that is said of followers."""
        return self._clock.monotonic_ms()

    def since_ms(self) -> int:
        """Who was caught up at this time, or later, keeps pace."""
        return self.now_ms() - self.lag_ms_max()

    def hold(self, log: PartitionLog, start_offset: int) -> None:
        """Keep the local segments that end above an offset for a while, see `LocalHold`."""
        now_ms = self._clock.wall_ms()  # by which segments expire
        log.hold.begin(start_offset, now_ms=now_ms, for_ms=self._bootstrap_hold_ms)

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the metadata let this incarnation of a broker into an ISR (KIP-841, KIP-903)."""
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (broker.epoch, NO_EPOCH)

    @property
    def has_elr(self) -> bool:
        """Whether eligible leader replicas are finalised."""
        return self._image().elr_enabled

    def registered_epoch(self, broker_id: int) -> int:
        """Of the incarnation of a broker that the metadata know; -1: none."""
        broker = self._image().brokers.get(broker_id)
        return NO_EPOCH if broker is None else broker.epoch

    def note(self, one: P, lacks: Collection[Lack]) -> None:
        """A partition lacks these by now, and no others."""
        for lack, found in self.lacking.items():
            if lack in lacks:
                found[one] = None
            else:
                found.pop(one, None)

    def count(self, before: int, after: int) -> None:
        """An ISR of so many members has so many now."""
        counter = self.shrinks if after < before else self.expands
        if counter is not None and after != before:
            counter.inc()

    def count_failed(self) -> None:
        """The controller has answered with an error where an ISR was asked for."""
        if self.failures is not None:
            self.failures.inc()

    # -- the watch --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch."""
        self._awake_ms = self.now_ms()
        self._beat()

    async def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        await self._runner.stop()

    def review_soon(self) -> None:
        """Look at all that is led: the metadata say something new of brokers."""
        if self.led:
            self._is_due = True  # a pass that runs has looked at some before this was known
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
    """Nobody is asked before the broker has its way to the controller."""
