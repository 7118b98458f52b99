"""A tier from the inside: its parts, and the part that handles each message.

Everything here runs on one thread, the one that reads the link; blocking work runs in a pool.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka_protocol.errors import ErrorCode
from rlm.config import TierConfig
from rlm.link.endpoint import Received, Reply
from rlm.link.messages import (
    Ack,
    Assign,
    AuxiliaryState,
    Configure,
    Configured,
    Connect,
    DescribeMetrics,
    Failure,
    Health,
    Heartbeat,
    ImageChanged,
    OffsetForTimestamp,
    PartitionHealth,
    Read,
    Reconfigure,
    Released,
    RunPasses,
    SetStoreFaults,
    Stop,
    StoreFaultHit,
    Unassign,
)
from rlm.maintenance.broker_port import BrokerPort
from rlm.maintenance.census import Counted
from rlm.maintenance.claim import Claim
from rlm.maintenance.incarnation import Incarnations
from rlm.maintenance.manager import RemoteLogManager
from rlm.maintenance.performer import World
from rlm.maintenance.removals import Removals
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins, Store
from rlm.quota import RateQuota
from rlm.read.read_path import ReadPath
from rlm.telemetry import MetricsPages, Telemetry
from rlm.workers import COPIER_POOL, EXPIRATION_POOL, READER_POOL, VALIDATION_POOL, Workers
from rlmm.api import features_off
from rsm_plugins.settings import public_names
from runtime.clock import Clock, shift
from runtime.health_reasons import HealthReason
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)

REPORT_MS = 1_000
WATCH_MS = 250
INDEX_EXPIRY_MS = 30_000
CLOSE_WAIT_MS, CLOSE_RETRY_MS = 1_500, 20

VALIDATION_THREADS = 4
"""A validation calls the store only after a loss of the epoch chain. Two hanging calls end the tier
(half of the pool), a single one does not."""

ConfigurePlugins = Callable[[TierConfig, PluginCalls], Plugins]
MakeWorkers = Callable[[Mapping[str, int]], Workers]


def pool_sizes(config: TierConfig) -> dict[str, int]:
    """Number of threads by pool."""
    return {
        COPIER_POOL: config.copier_threads,
        EXPIRATION_POOL: config.expiration_threads,
        VALIDATION_POOL: VALIDATION_THREADS,
        READER_POOL: config.reader_threads,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The broker as seen by its tier, and the ways in which a tier ends.

    Attributes:
        broker: Requests to the broker.
        tell: Sends a one-way message to it.
        abort: Ends the process at once, with a reason.
        ended: Called when a stop is complete.
    """

    broker: BrokerPort
    tell: Callable[[Health | StoreFaultHit], None]
    abort: Callable[[str], None]
    ended: Callable[[], None]


class TierReceiver:
    """Receives the broker's messages: makes the tier at `Configure`, and passes later ones to it.

    Attributes:
        tier: None until it is configured.
    """

    def __init__(
        self,
        configure_plugins: ConfigurePlugins,
        make_workers: MakeWorkers,
        ports: Ports,
        link: Link,
    ) -> None:
        self._configure_plugins, self._make_workers = configure_plugins, make_workers
        self._ports, self._link = ports, link
        self._calls = PluginCalls(ports.clock)
        self._has_config = False
        self.tier: Tier | None = None

    def __call__(self, received: Received, reply: Reply) -> None:
        """Handle one message."""
        message = received.message
        if isinstance(message, Heartbeat):
            reply(Ack())
        elif isinstance(message, Configure):
            self._configure(message.config, reply)
        elif self.tier is None:
            reply(Failure(int(ErrorCode.INVALID_REQUEST), "not configured yet"))
        else:
            self.tier.take(received, reply)

    def _configure(self, config: TierConfig, reply: Reply) -> None:
        if self._has_config:
            reply(Failure(int(ErrorCode.INVALID_REQUEST), "configured already"))
            return
        self._has_config = True
        shift(self._ports.clock, config.wall_offset_ms)
        workers = self._make_workers(pool_sizes(config))

        def done(plugins: Plugins | None, error: BaseException | None) -> None:
            if plugins is None:
                self._has_config = False
                reply(Failure(-1, str(error)))
                return
            self.tier = Tier(config, plugins, self._calls, workers, self._ports, self._link)
            reply(Configured(public_names(plugins.storage), plugins.identity))

        workers.run(EXPIRATION_POOL, lambda: self._configure_plugins(config, self._calls), done)


class Tier:
    """The parts of a configured tier.

    Attributes:
        claim: On the store.
        manager: The partitions that are copied and expired.
        reads: Everything that reads the store.
        calls: Running calls of the storage plugin.
        telemetry: Metrics.
    """

    def __init__(
        self,
        config: TierConfig,
        plugins: Plugins,
        calls: PluginCalls,
        workers: Workers,
        ports: Ports,
        link: Link,
    ) -> None:
        """Make all parts; the store is not called before `Connect`."""
        self._config, self._plugins, self._workers = config, plugins, workers
        self._clock, self._scheduler, self._link = ports.clock, ports.scheduler, link
        self._stopping = False
        self.calls = calls
        self.telemetry = Telemetry(ports.metrics, store=config.storage_class.rpartition(":")[2])
        self._metrics_pages = MetricsPages(self.telemetry.registry)
        incarnations = Incarnations(ports.disk, Path(config.state_dir), ports.clock, ports.rng)
        store = Store(
            metadata=plugins.metadata,
            storage=plugins.storage,
            calls=calls,
            telemetry=self.telemetry,
        )
        self.claim = Claim(config, store, incarnations, workers, ports, self._claim_changed)
        self.manager = RemoteLogManager(
            config=config,
            world=World(
                broker=link.broker,
                metadata=plugins.metadata,
                storage=plugins.storage,
                clock=ports.clock,
                rng=ports.rng,
                calls=calls,
                telemetry=self.telemetry,
                deletions=plugins.deletions,
                copy_max_ms=config.copy_max_ms,
                call_max_ms=config.call_max_ms,
                pause=workers.pause,
            ),
            workers=workers,
            scheduler=ports.scheduler,
            next_incarnation=incarnations.take,
            may_own=lambda: self.claim.may_own,
        )
        self.reads = ReadPath(config, store, workers, ports, self.manager, self.manager.catch_ups)
        self.manager.on_readable = self.reads.may_be_readable
        self._removals = Removals(plugins.remover, workers, lambda: calls.may_write)
        add_gauges(self.telemetry, plugins, workers, calls)
        add_quota_gauges(self.telemetry, "Copy", self.manager.passes.throttled.quota, ports.clock)
        add_quota_gauges(self.telemetry, "Fetch", self.reads.quota, ports.clock)
        if plugins.store_faults is not None:
            plugins.store_faults.on_hit = lambda *hit: link.tell(StoreFaultHit(*hit))
        every = ports.scheduler.every
        every(REPORT_MS, self._report, "tier-report")
        every(WATCH_MS, self._watch, "tier-watch")
        every(config.task_interval_ms, self._removals.wake, "tier-remover")
        every(INDEX_EXPIRY_MS, self.reads.expire_indexes, "tier-index-expiry")

    # -- messages

    def take(self, received: Received, reply: Reply) -> None:  # noqa: C901 - one case each
        """Handle one message of the broker."""
        match received.message:
            case Read() as question:
                self.reads.read(question, reply)
            case Released(tokens):
                self.reads.leases.released(tokens)
            case OffsetForTimestamp() as question:
                self.reads.search(question, reply)
            case Assign() as assign:
                self.manager.assign(assign)
                if not assign.is_leader:
                    self._plugins.deletions.forget(assign.topic_id, assign.partition)
                reply(Ack())
            case Unassign(topic_id, partition):
                self.manager.unassign(topic_id, partition)
                self._plugins.deletions.forget(topic_id, partition)
                self.reads.faults.forget(topic_id, partition)
                reply(Ack())
            case ImageChanged(led):
                self._plugins.metadata.lead(led)
                self._removals.wake()
            case AuxiliaryState() as question:
                self.reads.auxiliary(question, reply)
            case DescribeMetrics() as question:
                reply(self._metrics_pages.piece(question))
            case Connect(client_settings):
                self._connect(client_settings, reply)
            case Reconfigure(config):
                self._reconfigure(config)
                reply(Ack())
            case SetStoreFaults(faults):
                if self._plugins.store_faults is not None:
                    self._plugins.store_faults.set(faults)
                reply(Ack(self._plugins.store_faults is not None))
            case RunPasses():
                self.manager.passes.run_now(lambda: reply(Ack()))
            case Stop():
                self._stop(reply)
            case other:
                log.error(
                    Incident.DEFECT.line(
                        what=f"the broker sent what only a tier sends: {type(other).__name__}"
                    )
                )
                reply(Failure(int(ErrorCode.INVALID_REQUEST), "not a question to a tier"))

    def _connect(self, client_settings: Mapping[str, str], reply: Reply) -> None:
        def done(_: object, error: BaseException | None) -> None:
            reply(Ack() if error is None else Failure(-1, str(error)))

        connect = partial(self._plugins.connect, client_settings)
        self._workers.run(EXPIRATION_POOL, connect, done)
        self.claim.begin()

    def _claim_changed(self) -> None:
        self.manager.claim_changed()
        self._removals.wake()

    def _reconfigure(self, config: TierConfig) -> None:
        self._config = config
        shift(self._clock, config.wall_offset_ms)
        for pool, threads in pool_sizes(config).items():
            self._workers.resize(pool, threads)
        self.reads.reconfigure(config)
        self.manager.passes.reconfigure(config)

    # -- watching and reporting

    def _report(self) -> None:
        self.manager.census.take(self._tell)

    def _tell(self, counted: Counted) -> None:
        unhealthy = counted.unhealthy_ones()
        unhealthy.extend(
            PartitionHealth(b"", -1, reason)
            for reason in self.manager.passes.waits.unhealthy_ones()
        )
        unhealthy.extend(self.reads.unhealthy())
        unhealthy.extend(PartitionHealth(b"", -1, reason) for reason in self._plugins.unhealthy())
        metadata = self._plugins.metadata
        unhealthy.extend(PartitionHealth(b"", -1, reason) for reason in metadata.unreadable())
        # After a stop has begun, a closed manager is no failure.
        failure = "" if self._stopping else metadata.failure()
        if failure:
            unhealthy.append(PartitionHealth(b"", -1, HealthReason.MANAGER.text(error=failure)))
        if self.claim.unhealthy:
            unhealthy.append(PartitionHealth(b"", -1, self.claim.unhealthy))
        late = self._plugins.deletions.long_failing()
        if late is not None and late.is_unhealthy:
            unhealthy.append(PartitionHealth(b"", -1, late.reason))
        yellow = [] if late is None or late.is_unhealthy else [late.reason]
        if off := features_off(metadata):
            yellow.append(HealthReason.FEATURES_OFF.text(features="; ".join(off)))
        yellow += self._plugins.yellow()
        health = Health(
            counted.assigned,
            counted.ready,
            self.calls.abandoned,
            unhealthy,
            yellow,
            self.telemetry.totals() | self._plugins.deletions.totals(),
        )
        self._link.tell(health)
        if failure:
            self._link.abort(f"the metadata manager has failed: {failure}")

    def _watch(self) -> None:
        self.reads.watch(self._config.call_max_ms)
        for overdue in self.calls.newly_overdue():
            call = f"pool={overdue.pool} kind={overdue.kind} running_ms={overdue.running_ms}"
            log.error(Incident.PLUGIN_HANGS.line(call=call))
            if overdue.kind == "copy":
                self._link.abort("a copy runs past the copy maximum")
                continue
            self._workers.abandon(overdue.pool, overdue.thread_id)
            overdue.tell()
            if overdue.abandoned_in_pool * 2 >= self._workers.threads(overdue.pool):
                self._link.abort(f"half of pool {overdue.pool} hangs")

    def _stop(self, reply: Reply) -> None:
        """Close the plugins once the last call of the store has ended, or after a time-out."""
        self._stopping = True
        self.calls.let_write(False)
        self.manager.stop()
        self.reads.stop()
        self.claim.end()
        self._close_when_idle(reply, self._clock.monotonic_ms() + CLOSE_WAIT_MS)

    def _close_when_idle(self, reply: Reply, ends_at_ms: int) -> None:
        is_idle = self.reads.is_idle and self.claim.is_idle
        if not is_idle and self._clock.monotonic_ms() < ends_at_ms:
            again = self._close_when_idle
            self._scheduler.call_later(CLOSE_RETRY_MS, lambda: again(reply, ends_at_ms))
            return

        def done(_: object, error: BaseException | None) -> None:
            if error is not None:
                log.warning("closing failed: %s", error)
            reply(Ack())
            self._link.ended()

        self._workers.run(READER_POOL, self._plugins.close, done)


def add_gauges(
    telemetry: Telemetry, plugins: Plugins, workers: Workers, calls: PluginCalls
) -> None:
    """Add metrics of the metadata topic's records, the idle threads and the hanging calls."""
    counts = plugins.metadata.counts
    telemetry.registry.gauge(
        "tidemark_remote_metadata_records",
        "Records of the metadata topic since the tier's start, by what became of them",
        ("outcome",),
        lambda: {(outcome,): float(count) for outcome, count in counts().items()},
    )
    telemetry.gauge(
        "kafka_log_remote_RemoteLogManager_RemoteLogManagerTasksAvgIdlePercent",
        "Idle part of the copier and expiration threads in the last minute, 0 to 1",
        lambda: (workers.idle_share(COPIER_POOL) + workers.idle_share(EXPIRATION_POOL)) / 2,
    )
    telemetry.gauge(
        "tidemark_remote_failing_deletions",
        "Remote segments whose deletion failed when it was last tried, 1000 at most",
        lambda: float(plugins.deletions.failing()),
    )
    telemetry.gauge(
        "tidemark_remote_abandoned_calls",
        "Plugin calls past their limit that still run",
        lambda: float(calls.abandoned),
    )


def add_quota_gauges(telemetry: Telemetry, kind: str, quota: RateQuota, clock: Clock) -> None:
    """Add metrics of a quota's rate and pauses; `kind`: `Copy` or `Fetch`."""
    gauge, now_ms = telemetry.gauge, clock.monotonic_ms
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
