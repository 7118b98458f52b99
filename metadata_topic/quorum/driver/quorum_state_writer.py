"""Makes votes and epochs durable, and says which one is.

A write of `quorum-state` takes an fsync. What comes meanwhile waits, and of that only the newest is
written: it contains the others, as the core never takes back a vote or an epoch.
"""

from collections.abc import Callable
from functools import partial

from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile
from metadata_topic.raft.effects import Persist
from runtime.work import WorkQueue


class QuorumStateWriter:
    """Writes one state after the other; use it from the loop's thread only."""

    def __init__(
        self, file: QuorumStateFile, queue: WorkQueue, persisted: Callable[[int], None]
    ) -> None:
        """Begin with nothing to write.

        Args:
            file: `quorum-state`.
            queue: nothing else is in it.
            persisted: told on the loop, by the number of the effect; everything of a lower number
                is durable, too.
        """
        self._file, self._queue, self._persisted = file, queue, persisted
        self._next: Persist | None = None

    def write(self, effect: Persist) -> None:
        """Make a state durable; `persisted` hears of it, or of a newer one."""
        self._next = effect
        if self._queue.is_idle:
            self._write_next()

    def _write_next(self) -> None:
        effect, self._next = self._next, None
        if effect is None:
            return
        write = partial(
            self._file.write,
            effect.election,
            kraft_version=effect.kraft_version,
            voters=effect.voters,
        )
        self._queue.add(write, lambda _: self._written(effect.number))

    def _written(self, number: int) -> None:
        self._write_next()
        self._persisted(number)
