"""The tier process from the inside: makes the parts when it is configured, and hands them messages.

Everything here runs on one thread, the one that reads the link; whatever blocks runs in a pool.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka_protocol.errors import ErrorCode
from rlm.backoff import Backoff
from rlm.broker_port import BrokerPort
from rlm.claim import Claim
from rlm.config import TierConfig
from rlm.incarnation import Incarnations
from rlm.link import Received, Reply
from rlm.manager import RemoteLogManager
from rlm.messages import (
    Ack,
    Assign,
    AuxiliaryState,
    Configure,
    Connect,
    Failure,
    Health,
    Heartbeat,
    ImageChanged,
    Metrics,
    OffsetForTimestamp,
    PartitionHealth,
    Read,
    Reconfigure,
    Released,
    Stop,
    Unassign,
)
from rlm.performer import COPIER_POOL, EXPIRATION_POOL, JUDGE_POOL, READER_POOL, World
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.quota import RateQuota
from rlm.read_path import ReadPath
from rlm.red_kinds import TierRed
from rlm.telemetry import Telemetry
from rlm.workers import Workers
from runtime.clock import Clock
from runtime.dice import Dice
from runtime.disk import Disk
from runtime.scheduler import Scheduler

log = logging.getLogger(__name__)

REPORT_MS = 1_000
WATCH_MS = 250
INDEX_EXPIRY_MS = 30_000
CLOSE_WAIT_MS, CLOSE_RETRY_MS = 1_500, 20

JUDGE_THREADS = 4
"""A judgement asks the store only after a loss of the epoch chain; of two hanging calls the tier
ends itself (half of the pool), of a single one it does not."""

ConfigurePlugins = Callable[[TierConfig, PluginCalls], Plugins]
MakeWorkers = Callable[[Mapping[str, int]], Workers]


def pool_sizes(config: TierConfig) -> dict[str, int]:
    """Threads by pool."""
    return {
        COPIER_POOL: config.copier_threads,
        EXPIRATION_POOL: config.expiration_threads,
        JUDGE_POOL: JUDGE_THREADS,
        READER_POOL: config.reader_threads,
    }


class TierService:
    """Takes the broker's messages."""

    def __init__(
        self,
        *,
        broker: BrokerPort,
        tell: Callable[[Metrics | Health], None],
        configure_plugins: ConfigurePlugins,
        make_workers: MakeWorkers,
        clock: Clock,
        scheduler: Scheduler,
        disk: Disk,
        dice: Dice,
        abort: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        """Nothing happens before `Configure`.

        `tell` sends a one-way message to the broker, `abort` ends the process at once with a
        reason, `ended` is called when a stop is complete.
        """
        self._broker, self._tell = broker, tell
        self._configure_plugins, self._make_workers = configure_plugins, make_workers
        self._clock, self._scheduler, self._disk, self._dice = clock, scheduler, disk, dice
        self._abort, self._ended = abort, ended
        self._calls = PluginCalls(clock)
        self._parts: _Parts | None = None

    def __call__(self, received: Received, reply: Reply) -> None:
        """Take one message."""
        message = received.message
        if isinstance(message, Heartbeat):
            reply(Ack())
        elif isinstance(message, Configure):
            self._configure(message.config, reply)
        elif self._parts is None:
            reply(Failure(int(ErrorCode.INVALID_REQUEST), "not configured yet"))
        else:
            self._parts.take(received, reply)

    def _configure(self, config: TierConfig, reply: Reply) -> None:
        workers = self._make_workers(pool_sizes(config))

        def done(plugins: Plugins | None, error: BaseException | None) -> None:
            if plugins is None:
                reply(Failure(-1, str(error)))
                return
            self._parts = _Parts(self, config, plugins, workers)
            reply(Ack())

        workers.run(EXPIRATION_POOL, lambda: self._configure_plugins(config, self._calls), done)

    # What the parts need of the process.

    def make_world(self, config: TierConfig, plugins: Plugins, telemetry: Telemetry) -> World:
        """What every task works with."""
        return World(
            broker=self._broker,
            metadata=plugins.metadata,
            storage=plugins.storage,
            clock=self._clock,
            dice=self._dice,
            calls=self._calls,
            telemetry=telemetry,
            copy_max_ms=config.copy_max_ms,
            call_max_ms=config.call_max_ms,
        )


class _Parts:
    """What exists once the tier is configured."""

    def __init__(
        self, service: TierService, config: TierConfig, plugins: Plugins, workers: Workers
    ) -> None:
        clock, scheduler, disk = service._clock, service._scheduler, service._disk
        self._config, self._plugins, self._workers = config, plugins, workers
        self._scheduler, self._tell = scheduler, service._tell
        self._abort, self._ended = service._abort, service._ended
        self._telemetry = Telemetry(store=config.storage_class.rpartition(":")[2])
        incarnations = Incarnations(
            disk,
            Path(config.state_dir),
            clock,
            service._dice,
            [Path(path) for path in config.old_state_dirs],
        )
        self._claim = Claim(
            storage=plugins.storage,
            config=config,
            incarnations=incarnations,
            calls=service._calls,
            workers=workers,
            scheduler=scheduler,
            backoff=Backoff(
                config.retry_backoff_ms,
                config.retry_backoff_max_ms,
                config.retry_jitter,
                service._dice,
            ),
            changed=self._claim_changed,
        )
        self._world = service.make_world(config, plugins, self._telemetry)
        self._manager = RemoteLogManager(
            config=config,
            world=self._world,
            workers=workers,
            scheduler=scheduler,
            next_incarnation=incarnations.take,
            may_own=lambda: self._claim.may_own,
        )
        self._reads = ReadPath(
            config=config,
            world=self._world,
            workers=workers,
            scheduler=scheduler,
            disk=disk,
            tip_of=self._manager.tip_of,
            is_judged=self._manager.is_judged,
        )
        self._clock = clock
        self._remover_runs = False
        self._remover_again = False
        self._remover_pass = 0
        self._stopping = False
        self._watch_metrics()
        scheduler.every(REPORT_MS, self._report, "tier-report")
        scheduler.every(WATCH_MS, self._watch, "tier-watch")
        scheduler.every(config.task_interval_ms, self._remove, "tier-remover")
        scheduler.every(INDEX_EXPIRY_MS, self._reads.expire_indexes, "tier-index-expiry")

    # -- messages

    def take(self, received: Received, reply: Reply) -> None:
        """Take one message of the broker."""
        match received.message:
            case Read() as question:
                self._reads.read(question, reply)
            case Released(tokens):
                self._reads.released(tokens)
            case OffsetForTimestamp() as question:
                self._reads.search(question, reply)
            case Assign() as assign:
                self._manager.assign(assign)
                reply(Ack())
            case Unassign(topic_id, partition):
                self._manager.unassign(topic_id, partition)
                self._reads.faults.forget(topic_id, partition)
                reply(Ack())
            case ImageChanged(led):
                if self._plugins.lead is not None:
                    self._plugins.lead(led)
                self._remove()
            case AuxiliaryState() as question:
                self._reads.auxiliary(question, reply)
            case Connect():
                self._connect(reply)
            case Reconfigure(config):
                self._reconfigure(config)
                reply(Ack())
            case Stop():
                self._stop(reply)
            case other:
                log.error("the broker sent what only a tier sends: %s", type(other).__name__)
                reply(Failure(int(ErrorCode.INVALID_REQUEST), "not a question to a tier"))

    def _connect(self, reply: Reply) -> None:
        def done(_: object, error: BaseException | None) -> None:
            reply(Ack() if error is None else Failure(-1, str(error)))

        self._workers.run(EXPIRATION_POOL, self._plugins.connect, done)
        self._claim.begin()

    def _claim_changed(self) -> None:
        self._manager.claim_changed()
        self._remove()

    def _reconfigure(self, config: TierConfig) -> None:
        self._config = config
        for pool, threads in pool_sizes(config).items():
            self._workers.resize(pool, threads)
        self._reads.reconfigure(config)
        self._manager.reconfigure(config)

    # -- the remover of deleted topics

    def _remove(self) -> None:
        if self._plugins.remove_deleted is None or not self._world.calls.may_write:
            return
        if self._remover_runs:
            self._remover_again = True
            return
        self._remover_runs, self._remover_again = True, False
        self._remover_pass += 1
        number, remove_deleted = self._remover_pass, self._plugins.remove_deleted

        def given_up() -> None:
            """A call hangs: this pass will do nothing more, the next one is for other topics."""
            if number == self._remover_pass:
                self._remover_runs = False
                self._remove()

        def done(_: object, error: BaseException | None) -> None:
            if error is not None:
                log.warning("removing deleted topics failed and is tried again: %s", error)
            if number != self._remover_pass:
                return
            self._remover_runs = False
            if self._remover_again:
                self._remove()

        self._workers.run(EXPIRATION_POOL, lambda: remove_deleted(given_up), done)

    # -- watching and telling

    def _watch_metrics(self) -> None:
        gauge = self._telemetry.gauge
        counts = self._plugins.counts
        self._telemetry.registry.gauge(
            "tidemark_remote_metadata_records",
            "Records of the metadata topic since the tier's start, by what became of them",
            ("outcome",),
            lambda: {(outcome,): float(count) for outcome, count in counts().items()},
        )
        workers = self._workers
        gauge(
            "kafka_log_remote_RemoteLogManager_RemoteLogManagerTasksAvgIdlePercent",
            "Idle part of the copier and expiration threads in the last minute, 0 to 1",
            lambda: (workers.idle_share(COPIER_POOL) + workers.idle_share(EXPIRATION_POOL)) / 2,
        )
        self._watch_quota("Copy", self._manager.copy_quota)
        self._watch_quota("Fetch", self._reads.quota)
        gauge(
            "tidemark_remote_abandoned_calls",
            "Plugin calls past their limit that still run",
            lambda: float(self._world.calls.abandoned),
        )

    def _watch_quota(self, kind: str, quota: RateQuota) -> None:
        gauge, now_ms = self._telemetry.gauge, self._clock.monotonic_ms
        name = f"kafka_server_RemoteLogManager_remote_{kind.lower()}_throttle_time"
        gauge(
            f"{name}_avg",
            f"Average pause, ms, that the {kind.lower()} quota asked for in the last minute",
            lambda: quota.throttling(now_ms()).average_ms,
        )
        gauge(
            f"{name}_max",
            f"Longest pause, ms, that the {kind.lower()} quota asked for in the last minute",
            lambda: quota.throttling(now_ms()).longest_ms,
        )
        gauge(
            f"kafka_server_RLM{kind}_byte_rate",
            "Bytes per second within the quota's windows",
            lambda: quota.throttling(now_ms()).bytes_per_second,
        )

    def _report(self) -> None:
        red = self._manager.red()
        red.extend(self._reads.red())
        red.extend(PartitionHealth(b"", -1, reason) for reason in self._plugins.red())
        # Once a stop has begun, a manager that is closed did not fail.
        failure = "" if self._stopping else self._plugins.failure()
        if failure:
            red.append(PartitionHealth(b"", -1, TierRed.MANAGER.text(error=failure)))
        if self._claim.red:
            red.append(PartitionHealth(b"", -1, self._claim.red))
        health = Health(
            self._manager.assigned, self._manager.ready, self._world.calls.abandoned, red
        )
        self._tell(health)
        self._tell(Metrics(self._telemetry.samples()))
        if failure:
            self._abort(f"the metadata manager has failed: {failure}")

    def _watch(self) -> None:
        self._reads.watch(self._config.call_max_ms)
        for overdue in self._world.calls.newly_overdue():
            log.error(
                "plugin call hangs: pool=%s kind=%s running_ms=%d",
                overdue.pool,
                overdue.kind,
                overdue.running_ms,
            )
            if overdue.kind == "copy":
                self._abort("a copy runs past the copy maximum")
                continue
            self._workers.abandon(overdue.pool, overdue.thread_id)
            overdue.tell()
            if overdue.abandoned_in_pool * 2 >= self._workers.threads(overdue.pool):
                self._abort(f"half of pool {overdue.pool} hangs")

    def _stop(self, reply: Reply) -> None:
        """Close the plugins once the last call of the store has ended, or does not for too long."""
        self._stopping = True
        self._world.calls.let_write(False)
        self._manager.stop()
        self._reads.stop()
        self._claim.end()
        self._close_when_idle(reply, self._clock.monotonic_ms() + CLOSE_WAIT_MS)

    def _close_when_idle(self, reply: Reply, ends_at_ms: int) -> None:
        is_idle = self._reads.is_idle and self._claim.is_idle
        if not is_idle and self._clock.monotonic_ms() < ends_at_ms:
            again = self._close_when_idle
            self._scheduler.call_later(CLOSE_RETRY_MS, lambda: again(reply, ends_at_ms))
            return

        def done(_: object, error: BaseException | None) -> None:
            if error is not None:
                log.warning("closing failed: %s", error)
            reply(Ack())
            self._ended()

        self._workers.run(READER_POOL, self._plugins.close, done)
