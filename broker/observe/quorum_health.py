"""The quorum on a controller's health pages: whether it has a leader, and how far this node is."""

from collections.abc import Sequence
from typing import Final

from metadata_topic.quorum.node import MetadataNode
from runtime.health_reasons import HealthLine, HealthReason

_FETCH_TIMEOUTS: Final = 2


class QuorumHealth:
    """Unhealthy after two fetch timeouts without a leader; ready once all is applied.

    A known leader that does not answer counts as none: a loser of an election follows its old
    leader again. The process calls `look` more often than every two fetch timeouts, so that an
    absence is detected without requests for the pages.
    """

    def __init__(self, quorum: MetadataNode, *, fetch_timeout_ms: int, now_ms: int) -> None:
        """Begin without a leader.

        Args:
            quorum: The node to watch.
            fetch_timeout_ms: `controller.quorum.fetch.timeout.ms`.
            now_ms: Monotonic.
        """
        self._quorum = quorum
        self._limit_ms = _FETCH_TIMEOUTS * fetch_timeout_ms
        self._seen_ms = now_ms
        self._seen = (-1, -1)

    def look(self, now_ms: int) -> None:
        """Note the present leader, if there is one."""
        view = self._quorum.describe()
        if view.leader_id >= 0 and (view.epoch, view.leader_id) != self._seen:
            self._seen, self._seen_ms = (view.epoch, view.leader_id), now_ms
        self._seen_ms = max(self._seen_ms, view.leader_answered_ms)

    def problems(self, now_ms: int) -> Sequence[HealthLine]:
        """Why the node is unhealthy."""
        self.look(now_ms)
        absent_ms = now_ms - self._seen_ms
        if absent_ms <= self._limit_ms:
            return ()
        view = self._quorum.describe()
        last = f", then it was node {view.leader_id}" if view.leader_id >= 0 else ""
        return (HealthReason.NO_QUORUM.line(ms=absent_ms, epoch=view.epoch, last=last),)

    def waits_for(self, now_ms: int) -> Sequence[str]:
        """Why the node is not ready; empty if it is."""
        view = self._quorum.describe()
        if view.leader_id < 0 or self.problems(now_ms):
            return ("no leader of the metadata quorum is known",)
        if view.high_watermark < 0:
            return (f"how far the log is committed is not known yet (leader {view.leader_id})",)
        applied = self._quorum.applied_end
        committed = max(view.high_watermark, view.leader_high_watermark)
        if applied < committed:
            return (f"applied up to offset {applied} of {committed}",)
        return ()
