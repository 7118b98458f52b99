"""Results of a look of the remover, for the cluster's list of removals and for the operator."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from rlmm.api import (
    MetadataError,
    PartitionDeleteState,
    PartitionDeletion,
    RemovesDeletedTopics,
)
from rlmm.topic_based.removal_policy import (
    ClusterImage,
    Standing,
    first_of,
    standing_of,
    text_of,
)
from rlmm.topic_based.removal_ports import NotTakenError, RemovedTopics
from runtime.clock import Clock
from runtime.health_reasons import HealthReason, HealthText

log = logging.getLogger(__name__)

_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


class _Found(NamedTuple):
    unhealthy: tuple[HealthText, ...]
    yellow: tuple[HealthText, ...]


class RemovalNotes:
    """Notes the results of looks, one look at a time.

    Attributes:
        unhealthy, yellow: Findings of the last look that need an operator.
    """

    def __init__(
        self, manager: RemovesDeletedTopics, cluster: RemovedTopics, grace_ms: int, clock: Clock
    ) -> None:
        self._manager, self._cluster, self._clock = manager, cluster, clock
        self._grace_ms = grace_ms
        self._nothing_left_since_ms: dict[bytes, int] = {}
        self._not_taken: tuple[HealthText, ...] = ()
        self.unhealthy: tuple[HealthText, ...] = ()
        self.yellow: tuple[HealthText, ...] = ()

    def note(
        self,
        known: list[PartitionDeletion],
        image: ClusterImage,
        *,
        is_whole: bool,
        may_write: Callable[[], bool],
    ) -> None:
        """Note the results of a look.

        Args:
            known: User partitions of the metadata partitions that this broker leads.
            image: Requested after `known` was read.
            is_whole: True if `known` is complete: only then topics leave the list.
            may_write: Asked before each record.
        """
        found = self._find(known, image)
        self._tell(found)
        if is_whole and may_write():
            self._not_taken = ()
            try:
                self._note_emptied(known, image)
            except NotTakenError as error:  # deletions do not wait for this answer
                self._not_taken = (HealthReason.REMOVALS_NOT_TAKEN.text(error=error),)
            self._tell(found)

    def _note_emptied(self, known: list[PartitionDeletion], image: ClusterImage) -> None:
        """Remove topics from the list that have had nothing left for the grace time.

        The grace time is for ids that no record has named yet: a record may be on its way.
        """
        left = {one.partition.topic_id for one in known if one.state is not _FINISHED}
        now_ms, before = self._clock.monotonic_ms(), self._nothing_left_since_ms
        since = {one: before.get(one, now_ms) for one in image.removed_ids if one not in left}
        self._nothing_left_since_ms = since
        done = [one for one, since_ms in since.items() if now_ms - since_ms >= self._grace_ms]
        if done:
            self._cluster.topics_emptied(done)
            log.info("removed topics have left the remote store: count=%d", len(done))

    # -- findings for an operator

    def _tell(self, found: _Found) -> None:
        reasons = tuple(dict.fromkeys((*found.unhealthy, *self._not_taken)))
        for unhealthy in reasons:
            if unhealthy not in self.unhealthy:
                log.error("%s", unhealthy)
        for reason in found.yellow:
            if reason not in self.yellow:
                log.warning("%s", reason)
        self.unhealthy, self.yellow = reasons, found.yellow

    def _find(self, known: list[PartitionDeletion], image: ClusterImage) -> _Found:
        texts = {standing: list[HealthText]() for standing in Standing}
        for one in (*known, *self._manager.finished_partitions(image.topic_ids)):
            standing = standing_of(one, image)
            if standing is Standing.MARKED_BUT_EXISTS or (
                standing in {Standing.UNKNOWN, Standing.MISSING} and self._has_something_left(one)
            ):
                texts[standing].append(text_of(standing, one))
        unhealthy = [*texts[Standing.MARKED_BUT_EXISTS], *texts[Standing.UNKNOWN]]
        return _Found(first_of(unhealthy), first_of(texts[Standing.MISSING]))

    def _has_something_left(self, known: PartitionDeletion) -> bool:
        if known.state is _FINISHED:
            return False
        try:
            segments = self._manager.list_segments(known.partition)
            return known.state is not None or next(iter(segments), None) is not None
        except MetadataError:
            return False  # its metadata partition is being read again
