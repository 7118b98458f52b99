"""The driver's work between two micro-batches: offsets, limits, plans.

One instance lives as long as its query and keeps one log open, so that each micro-batch costs one
question for the topics and one for their ends. It must never be sent anywhere.

Where a stream starts at the latest offsets, Spark keeps them nowhere before its first batch, and a
query killed there would start later when it comes back. So the first batch reads nothing of such
partitions: its end is their start, and Spark writes that into the checkpoint.

Offsets: starts are inclusive, ends exclusive. Must not know: Arrow, Spark.
"""

import math
from collections.abc import Callable, Mapping

from kafka_protocol.types import TopicPartition
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.errors import DataLossError
from pipeline.log import TieredLog
from pipeline.spark.driver_log import LoggedTexts, driver_log, log_plan
from pipeline.spark.limits import Rates, backlog, take, waits
from pipeline.spark.options import ReadOptions
from pipeline.spark.ranges import Offsets, loss_sentence, resolve, stream_ranges
from pipeline.spark.topics import find, find_all
from pipeline.values import Plan, Source, Where


class Stream:
    """The driver's side of one running query."""

    def __init__(
        self,
        options: ReadOptions,
        open_log: Callable[[Where], TieredLog],
        monotonic_ms: Callable[[], float],
    ) -> None:
        """Take the options; the log is opened by the first question."""
        self._options, self._open_log, self._monotonic_ms = options, open_log, monotonic_ms
        self._log: TieredLog | None = None
        self._initial: Offsets | None = None
        self._seen: Offsets | None = None  # what Spark has, from here or from its checkpoint
        self._floating: frozenset[TopicPartition] = frozenset()  # not in the first batch
        self._target: Offsets | None = None  # of Trigger.AvailableNow
        self._latest: Offsets | None = None
        self._last_batch_ms = -math.inf
        self._logged = LoggedTexts()

    @property
    def rates(self) -> Rates:
        """The user's limits of a micro-batch."""
        return self._options.rates

    def initial(self) -> Offsets:
        """Where a new stream starts; resolved once."""
        if self._initial is None:
            log = self._opened()
            partitions = find_all(log, self._options.topics)
            resolved = resolve(log, self._options.starting, partitions, "starting")
            offsets = dict(resolved.offsets)
            known = self._seen or self._target or {}
            offsets |= {one: known[one] for one in resolved.floating if one in known}
            if self._seen is None:
                self._floating = resolved.floating
            self._initial = offsets
            driver_log().info("stream: starts at %d partitions' offsets", len(offsets))
        return dict(self._initial)

    def latest(self, start: Mapping[TopicPartition, int] | None, *, limited: bool) -> Offsets:
        """Where the next micro-batch ends.

        Args:
            start: where it starts; None where Spark does not say (before 4.2).
            limited: whether the user's limits hold.
        """
        self._latest = end = self._ends()
        if limited and start is not None and self._options.rates:
            end = self._limited(start, end)
        if start is not None:
            end = {one: start[one] if one in self._floating else at for one, at in end.items()}
        self._floating = frozenset()
        self._seen = dict(end)
        return end

    def latest_seen(self) -> Offsets | None:
        """The ends that were last asked for; for reports."""
        return self._latest

    def stop_at_what_is_there(self) -> None:
        """From now on nothing newer than now is shown (Trigger.AvailableNow)."""
        self._target = self._ends()

    def plan(self, start: Offsets, end: Offsets) -> tuple[Plan, Source] | None:
        """The plan of a micro-batch; None: nothing.

        Raises:
            DataLossError: records between start and end are gone, and that is an error.
        """
        if self._latest is None:  # a query that continues; maybe with its first batch again
            if start == self._initial:
                start = _start_again(start, end, self._floating)
            self._seen, self._floating = dict(end), frozenset()
        if start == end:
            return None
        log = self._opened()
        new = sorted(set(end) - set(start))
        there = set(find(log, self._options.topics).partitions) if new else set()
        earliest = log.earliest([one for one in new if one in there]) if there else {}
        known_end = {one: at for one, at in end.items() if one in start or one in earliest}
        ranges, losses = stream_ranges(start, known_end, earliest)
        losses += [f"{one} is gone" for one in new if one not in earliest]
        self._validate(losses)
        if not ranges:
            return None
        plan = log.plan(ranges, self._options.limits)
        log_plan("stream", len(plan.splits), plan.facts, self._logged)
        return plan, log.source

    def close(self) -> None:
        """Let go of connections."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _opened(self) -> TieredLog:
        if self._log is None:
            self._log = self._open_log(self._options.where)
        return self._log

    def _ends(self) -> Offsets:
        if self._target is not None:
            return dict(self._target)
        log = self._opened()
        found = find(log, self._options.topics)
        try:
            ends = log.latest(found.partitions) if found.partitions else {}
        except UnknownTopicError:  # deleted between the two questions
            found = find(log, self._options.topics)
            ends = log.latest(found.partitions) if found.partitions else {}
        if found.missing:
            self._validate([f"{one} is gone, or was never there" for one in found.missing])
        return ends

    def _limited(self, start: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
        new = [one for one in end if one not in start]
        begin = {**start, **(self._opened().earliest(new) if new else {})}
        rates, now_ms = self._options.rates, self._monotonic_ms()
        waiting = waits(rates, backlog(begin, end), now_ms - self._last_batch_ms)
        if waiting and self._target is None:  # nothing more comes for AvailableNow
            return dict(start)
        self._last_batch_ms = now_ms
        return end if rates.most is None else take(rates.most, begin, end)

    def _validate(self, losses: list[str]) -> None:
        if losses and self._options.where.fail_on_data_loss:
            raise DataLossError(loss_sentence(losses))
        for loss in filter(self._logged.is_new, losses):
            driver_log().warning("stream: %s; skipped (failOnDataLoss=false)", loss)


def _start_again(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    floating: frozenset[TopicPartition],
) -> Offsets:
    """Where the first batch of a query starts when it is read again.

    The checkpoint holds the batch's end alone, so Spark asks for the start again. Partitions that
    came since are not in that batch: the next one takes them as new, from their earliest offset.

    Args:
        start: what was resolved now.
        end: of the batch, as it was planned.
        floating: partitions that start at the latest offset: they start at the batch's end.
    """
    return {one: end[one] if one in floating else at for one, at in start.items() if one in end}
