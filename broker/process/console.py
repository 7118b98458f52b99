"""The page at `/` of a process, with the part that each node has: brokers, quorum, totals.

All values are read in memory: no disk, no tier and no other node is asked. `broker_source` adds
those of a broker.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

from broker.config.broker_config import BrokerConfig
from broker.observe.console.facts import (
    BrokerFacts,
    NothingYet,
    QuorumFacts,
    ReplicaOfQuorum,
    Source,
)
from broker.observe.console.history import BROKER_TOTALS, EVERY_MS
from broker.observe.console.serving import Access, Console, StateMaker, node_facts
from broker.observe.health import Health
from broker.observe.http import Respond
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.quorum.view import QuorumView, ReplicaProgress
from runtime.metrics import Counter, Registry
from runtime.ports import Ports
from runtime.version import installed_version
from runtime.work import Runner, Steps, logged


class NodeSource(NothingYet):
    """Brokers and quorum, of each node with the metadata log."""

    def __init__(self, node: MetadataNode) -> None:
        self._node = node

    def brokers(self) -> Iterator[BrokerFacts]:
        """One entry a registered broker, by the node's image."""
        for one in list(self._node.image.brokers.values()):
            yield BrokerFacts(
                one.id,
                [f"{each.host}:{each.port}" for each in one.endpoints],
                one.rack or "",
                one.fenced,
                one.in_controlled_shutdown,
                one.remote_store is not None,
            )

    def quorum(self) -> QuorumFacts | None:
        """The quorum in this node's view."""
        view = self._node.describe()
        end = max((one.log_end_offset for one in view.voters), default=-1)
        return QuorumFacts(
            epoch=view.epoch,
            leader_id=view.leader_id,
            is_leader=view.is_leader,
            high_watermark=view.high_watermark,
            voters=[_replica(one, end) for one in view.voters] or _nodes(view),
            observers=[_replica(one, end) for one in view.observers],
        )


def _replica(found: ReplicaProgress, end: int) -> ReplicaOfQuorum:
    known = found.log_end_offset >= 0
    behind = max(end - found.log_end_offset, 0) if known else -1
    return ReplicaOfQuorum(found.key.id, found.log_end_offset, behind)


def _nodes(view: QuorumView) -> list[ReplicaOfQuorum]:
    return [ReplicaOfQuorum(one.id, -1, -1) for one in view.nodes]


class ConsoleWiring:
    """The page of a process: served from the start on; parts are added as they come."""

    def __init__(self, config: BrokerConfig, health: Health, ports: Ports) -> None:
        """Gather nothing yet.

        Args:
            config: With the address, and whether it is served.
            health: Of the process.
            ports: Of the process.
        """
        self._config, self._ports = config, ports
        node = node_facts(health, cache(installed_version), ports.clock)
        self._states = StateMaker(node, ports.clock)
        self._tier_totals: Callable[[], Mapping[str, float]] = dict
        self._is_open = False
        self._sampling = Runner(self._sample, ports.scheduler, failed=logged("totals of the page"))

    def respond_or(self, others: Respond, host: str) -> Respond:
        """Answer the page's paths, and pass the rest to `others`; `host` is the listener's."""
        access = _access(self._config, host)
        self._is_open = access.is_open
        return Console(access, self._states, others).respond

    def begin(self) -> Callable[[], None]:
        """Begin to take samples, if there is a page; returns a function that ends it."""
        if not self._is_open:
            return lambda: None
        self._sampling.start()
        timer = self._ports.scheduler.every(EVERY_MS, self._sampling.start, "totals of the page")

        def end() -> None:
            timer.cancel()
            self._sampling.cancel()

        return end

    def show(self, source: Source, tier_totals: Callable[[], Mapping[str, float]] = dict) -> None:
        """Read from `source` from now on; `tier_totals` returns the known `TIER_TOTALS`."""
        self._states.source, self._tier_totals = source, tier_totals

    def _sample(self) -> Steps[None]:
        """Sum up one counter a step: each has a value a topic."""
        found = dict(self._tier_totals())
        for name, counter in broker_counters(self._ports.metrics).items():
            found[name] = counter.total()
            yield
        self._states.history.add(self._ports.clock.monotonic_ms(), found)


def console_url(config: BrokerConfig, address: tuple[str, int] | None) -> str:
    """Return the URL of a node's page.

    Args:
        config: Of the node.
        address: Host and port of the listener; None: there are no pages.

    Returns:
        "" without a page; for a listener on all addresses the one of loopback.
    """
    if address is None or not _access(config, address[0]).is_open:
        return ""
    host, port = address
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _access(config: BrokerConfig, host: str) -> Access:
    return Access.of(host, config.tidemark_console_enable, config.tidemark_console_hosts)


def broker_counters(metrics: Registry) -> dict[str, Counter]:
    """The counters of `BROKER_TOTALS` that are registered."""
    found = {name: metrics.get(one) for name, one in BROKER_TOTALS.items()}
    return {name: one for name, one in found.items() if isinstance(one, Counter)}
