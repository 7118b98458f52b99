"""The periodic tasks of a broker: retention, checkpoints, expiry.

Each task is a short pass over the hosted logs; work that may wait for a disk runs on the pool
`log-background`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.observe.cleaner_metrics import register_cleaner_metrics
from kafka_protocol.errors import KafkaError
from local_log.cleaner.cleaner import LogCleaner
from local_log.cleaner.log_pass import CleanerSettings
from local_log.cleaner.process import ProcessWorker
from local_log.manager.log_dirs import LogManager
from runtime.clock import Clock
from runtime.executors import Pool
from runtime.incidents import Incident
from runtime.log_context import Outage
from runtime.ports import Ports
from runtime.scheduler import Scheduler, Timer

log = logging.getLogger(__name__)

_LONGEST_INTERVAL_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""Kafka's "never" is 2^63-1, which a timer does not take."""


@dataclass(frozen=True, slots=True)
class Task:
    """One recurring task.

    Attributes:
        name: For the log.
        interval_ms: Between the end of one pass and the start of the next.
        run: One pass.
        in_pool: Run it on the pool, because it waits for the disk.
    """

    name: str
    interval_ms: int
    run: Callable[[], object]
    in_pool: bool = False


class Housekeeping:
    """Runs tasks until stopped."""

    def __init__(self, tasks: list[Task], *, scheduler: Scheduler, pool: Pool) -> None:
        self._tasks = tasks
        self._scheduler = scheduler
        self._pool = pool
        self._timers: list[Timer] = []
        self._running: set[str] = set()
        self._outages = {task.name: Outage(log, f"task {task.name}") for task in tasks}

    def start(self, initial_delay_ms: int) -> None:
        """Begin after `initial_delay_ms` (`log.initial.task.delay.ms`)."""
        self._timers.append(self._scheduler.call_later(initial_delay_ms, self._begin))

    def stop(self) -> None:
        """Start no further pass."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _begin(self) -> None:
        for task in self._tasks:
            if task.interval_ms >= _LONGEST_INTERVAL_MS:
                continue
            self._run(task)
            again = partial(self._run, task)
            self._timers.append(self._scheduler.every(task.interval_ms, again, task.name))

    def _run(self, task: Task) -> None:
        if task.name in self._running:
            return  # the disk is slow: one pass at a time
        if not task.in_pool:
            self._try(task)
            return
        self._running.add(task.name)
        self._pool.submit(self._try, task).add_done_callback(
            lambda _: self._running.discard(task.name)
        )

    def _try(self, task: Task) -> None:
        outage = self._outages[task.name]
        try:
            task.run()
        except (OSError, KafkaError) as error:
            outage.failed(error)
        except Exception:
            # No caller takes the result of a pass, so the error would be lost. The next pass runs
            # in any case.
            log.exception(Incident.DEFECT.line(what=f"task {task.name} failed"))
        else:
            outage.succeeded()


def housekeeping_tasks(config: BrokerConfig, logs: LogManager, clock: Clock) -> list[Task]:
    """Make the tasks of one broker.

    Retention removes segments, so it runs on the event loop, which owns them; it only renames
    files. Checkpoints wait for fsync, so they run on `log-background`.
    """
    return [
        Task(
            "retention",
            config.log_retention_check_interval_ms,
            lambda: logs.run_retention(clock.wall_ms()),
        ),
        Task("flush", config.log_flush_scheduler_interval_ms, logs.flush_due),
        Task(
            "recovery point checkpoint",
            config.log_flush_offset_checkpoint_interval_ms,
            logs.checkpoint_recovery_points,
            in_pool=True,
        ),
        Task(
            "log start checkpoint",
            config.log_flush_start_offset_checkpoint_interval_ms,
            logs.checkpoint_log_starts,
            in_pool=True,
        ),
        Task(
            "high watermark checkpoint",
            config.replica_high_watermark_checkpoint_interval_ms,
            logs.checkpoint_high_watermarks,
            in_pool=True,
        ),
        Task(
            "producer expiry",
            config.producer_id_expiration_check_interval_ms,
            lambda: logs.expire_producers(clock.wall_ms(), config.producer_id_expiration_ms),
        ),
    ]


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """The cleaner's settings, from those of the broker."""
    load = config.log_cleaner_io_buffer_load_factor
    rate = config.log_cleaner_io_max_bytes_per_second
    return CleanerSettings(
        is_enabled=config.log_cleaner_enable and config.log_cleaner_threads > 0,
        backoff_ms=config.log_cleaner_backoff_ms,
        map_bytes=max(int(config.log_cleaner_dedupe_buffer_size * load), 4096),
        buffer_bytes=max(config.log_cleaner_io_buffer_size, 4096),
        bytes_per_second=rate if rate < 1e18 else 0.0,
    )


def make_cleaner(current: Callable[[], BrokerConfig], logs: LogManager, ports: Ports) -> LogCleaner:
    """Make the cleaner of a broker; it does nothing before its `start`.

    Args:
        current: Returns the present settings.
        logs: Of the broker.
        ports: Of the process.
    """
    worker = ProcessWorker()
    cleaner = LogCleaner(logs, lambda: cleaner_settings(current()), ports, worker)
    register_cleaner_metrics(ports.metrics, cleaner, logs, ports.clock)
    return cleaner
