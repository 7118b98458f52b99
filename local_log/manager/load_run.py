"""Opens the logs of all directories beside the event loop, several at a time.

Each log directory has threads of its own, `num.recovery.threads.per.data.dir` of them, so that a
slow disk delays only itself. They list the directory, then take one partition after the other.

A stopped run ends as after a kill. A log that is being opened stays between two steps of its
recovery, and no checkpoint and no clean mark is written. The next start repeats all of it.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kafka_protocol.types import TopicPartition
from local_log.errors import LoadStopped
from local_log.manager.loading import Loaded, Loader
from local_log.manager.log_dir import LogDir
from runtime.executors import Pool, make_mutex
from runtime.ports import Ports

log = logging.getLogger(__name__)

T = TypeVar("T")

LOG_EVERY_MS: Final = 10_000


class LoadRun:
    """One load of all directories; used once.

    Attributes:
        done: Number of finished partitions, opened or not.
        total: Number of partitions found; None while the directories are listed.
    """

    def __init__(self, loader: Loader, dirs: Sequence[LogDir], ports: Ports, threads: int) -> None:
        """Take the parts; `run` does the work.

        Args:
            loader: Opens one partition.
            dirs: All log directories.
            ports: Has the pools.
            threads: Number for each directory.
        """
        self._loader, self._dirs, self._threads = loader, dirs, threads
        self._executors, self._clock = ports.executors, ports.clock
        self._found: dict[TopicPartition, list[LogDir]] = {}
        self._outcomes: dict[TopicPartition, Loaded] = {}
        self._is_stopped = False
        self._counting = make_mutex()
        self._logged_ms = 0
        self.done = 0
        self.total: int | None = None
        loader.check_stop = self.check_stop

    # -- from any thread

    def stop(self) -> None:
        """Make `run` end soon.

        No further partition is begun, and those in progress are abandoned.
        """
        self._is_stopped = True

    def check_stop(self) -> None:
        """Raise if the run was stopped.

        Raises:
            LoadStopped: It was.
        """
        if self._is_stopped:
            raise LoadStopped(f"opening the logs was stopped after {self.done} of {self.total}")

    def stage(self) -> str:
        """Progress for people; empty while unknown."""
        if self.total is None:
            return ""
        does = "opening" if all(one.was_clean for one in self._dirs if one.works) else "recovering"
        return f"{does} {self.done} of {self.total} partitions"

    # -- on a thread that may wait

    def run(self) -> Loaded:
        """List the directories and open their partitions; returns when all threads are done.

        Returns:
            Outcome of each partition, in the order in which they were found.

        Raises:
            LoadStopped: After `stop`.
        """
        began_ms = self._logged_ms = self._clock.monotonic_ms()
        working = [directory for directory in self._dirs if directory.works]
        looked = self._on_each(working, self._loader.look_into)
        for directory, (names, _) in zip(working, looked, strict=True):
            for tp in names:
                self._found.setdefault(tp, []).append(directory)
        futures = [one for _, futures in looked for one in futures]
        moves = self._loader.settle(futures, self._found)
        queues = {directory: deque[TopicPartition]() for directory in working}
        for tp, directories in self._found.items():
            queues[directories[0]].append(tp)
        self.total = len(self._found)
        for directory, queue in queues.items():
            if queue and directory.works and not directory.was_clean:
                log.info("recovering after an unclean stop: path=%s", directory.path)
        self._on_each(
            [directory for directory in working for _ in range(self._threads)],
            lambda directory: self._empty(queues[directory]),
        )
        self.check_stop()
        assert len(self._outcomes) == self.total, "every partition that was found came to an end"
        took_ms = self._clock.monotonic_ms() - began_ms
        log.info("logs are open: partitions=%d took_ms=%d", self.total, took_ms)
        return Loaded.of_all([Loaded(moves=moves), *(self._outcomes[tp] for tp in self._found)])

    def _empty(self, queue: deque[TopicPartition]) -> None:
        while not self._is_stopped:
            try:
                tp = queue.popleft()
            except IndexError:
                return
            outcome = self._loader.load_one(tp, self._found[tp])
            with self._counting:
                self._outcomes[tp] = outcome
                self.done += 1
                self._log_progress()

    def _log_progress(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= LOG_EVERY_MS:
            self._logged_ms = now_ms
            log.info("%s", self.stage())

    def _on_each(self, directories: Sequence[LogDir], work: Callable[[LogDir], T]) -> list[T]:
        """Run `work` for each directory on its own pool; wait for all, also after errors.

        Raises:
            Exception: The first error.
        """

        def guarded(directory: LogDir) -> T:
            try:
                return work(directory)
            except BaseException:
                self.stop()  # the others need not continue
                raise

        futures = [self._pool(one).submit(guarded, one) for one in directories]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda one: isinstance(one, LoadStopped)):
            raise error
        return [future.result() for future in futures]

    def _pool(self, directory: LogDir) -> Pool:
        name = f"log-recovery-{self._dirs.index(directory)}"
        return self._executors.pool(name, self._threads)
