"""Several controllers and a broker for development: a process each, all stopped by one Ctrl-C."""

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.node.cluster_secret import draw_cluster_secret
from kafka_client.blocking import BlockingClient, ClusterError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.rng import SystemRng
from tidemark.dev.ports import first_steps, typed
from tidemark.dev.processes import NodeProcess, stop_in_order
from tidemark.dev.settings import (
    BROKER_ID,
    HOST,
    ClusterPorts,
    S3Bucket,
    broker_name,
    dev_broker_settings,
    dev_controller_settings,
    dev_secret_file,
)
from tidemark.node_files.formatting import format_cluster
from tidemark.node_files.loading import load
from tidemark.node_files.log_directories import stopped

STOP_LIMITS_MS: Final = (20_000, 10_000)
"""Of the broker, then of the controllers."""
_START_MS: Final = 60_000
_POLL_S: Final = 0.2
_ANSWER_S: Final = 1.0

Say = Callable[[str], None]


class DevCluster:
    """The nodes, in `data/controller-N` and `data/broker`, with their logs beside their data.

    Further brokers are in `data/broker-12` and so on.
    """

    def __init__(
        self,
        data: Path,
        port: int,
        count: int,
        overrides: Sequence[str] = (),
        s3: S3Bucket | None = None,
        brokers: int = 1,
    ) -> None:
        """Nothing is started yet.

        Args:
            data: directory for everything.
            port: of the broker; those of the other brokers follow, then the controllers', then the
                ports of the pages.
            count: how many controllers.
            overrides: `key=value` for all nodes.
            s3: the remote tier; None for a directory beside the broker's log.
            brokers: how many brokers.
        """
        ports = ClusterPorts.in_a_row(port, count, brokers)
        self.address = ",".join(f"{HOST}:{one}" for one in (port, *ports.others))
        self._secret, self._overrides = dev_secret_file(data), tuple(overrides)
        self._brokers = [
            NodeProcess(
                "the broker" if brokers == 1 else f"broker {BROKER_ID + number}",
                data / broker_name(number),
                dev_broker_settings(data, ports, s3, number),
                overrides,
            )
            for number in range(brokers)
        ]
        self._shown = "a broker" if brokers == 1 else f"{brokers} brokers"
        self._controllers = [
            NodeProcess(
                f"controller {number}",
                data / f"controller-{number}",
                dev_controller_settings(data, ports, number),
                overrides,
            )
            for number in range(1, count + 1)
        ]
        self._has_ended: set[str] = set()

    def run(self, say: Say, then: Callable[[], None]) -> int:
        """Run them until Ctrl-C or SIGTERM, or until all have ended by themselves.

        Args:
            say: shows a line to the person.
            then: called once, when clients are served.

        Returns:
            The exit code: 0 after Ctrl-C, 1 where a node did not start or none is left.

        Raises:
            ConfigError, FormatError, DirectoryError, OSError: they cannot be started, or one runs
                already; none was.
        """
        began_ms, configs = SystemClock().monotonic_ms(), self.configs()
        cluster_id = format_cluster(configs)
        for config in configs:
            with stopped(config, Disk()):
                pass  # nodes that run already would answer as if they were those of this start
        draw_cluster_secret(self._secret, Disk(), SystemRng())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        try:
            for node in self._nodes:
                # Ctrl-C reaches this process alone, which stops them in order.
                node.start(own_session=True)
            logs = "".join(f"\n  {node.log_file}" for node in self._nodes)
            count = len(self._controllers)
            say(f"starting {count} controllers and {self._shown}; their logs:{logs}")
            if not self._serves(cluster_id, say):
                return 1
            then()
            say(self._welcome((SystemClock().monotonic_ms() - began_ms) / 1000))
            return self._wait(say)
        except KeyboardInterrupt:
            return 0
        finally:
            self._stop(say)

    @property
    def _nodes(self) -> list[NodeProcess]:
        return [*self._controllers, *self._brokers]

    def configs(self) -> list[BrokerConfig]:
        """Of all nodes.

        Raises:
            ConfigError: an override is wrong.
        """
        return [
            load(node.entries, self._overrides, list_without_effect=False) for node in self._nodes
        ]

    def _serves(self, cluster_id: str, say: Say) -> bool:
        """Wait until clients are served; False where a node has ended, or time is over."""
        clock = SystemClock()
        ends_ms = clock.monotonic_ms() + _START_MS
        last = ""
        while clock.monotonic_ms() < ends_ms:
            if self._ended(say):
                return False
            last = self._lacks(cluster_id)
            if not last:
                return True
            time.sleep(_POLL_S)
        say(f"clients are not served after {_START_MS // 1000} s: {last}; see the logs")
        return False

    def _lacks(self, cluster_id: str) -> str:
        """Why clients are not served yet; "" where they are.

        Somebody else may have the port, while the broker is about to end for that reason.
        """
        try:
            with BlockingClient(self.address) as client:
                client.timeout_s = _ANSWER_S
                question = codec.request(ApiKey.DESCRIBE_CLUSTER).cls()
                answer = client.ask_any(ApiKey.DESCRIBE_CLUSTER, 0, question)
        except ClusterError as error:
            return str(error)
        if answer.cluster_id != cluster_id:
            return f"{self.address} is of another cluster, {answer.cluster_id}"
        # A topic that is made next may have a copy on each of them.
        here = {one.broker_id for one in answer.brokers}
        away = [one.name for one in self._brokers if int(one.entries["node.id"]) not in here]
        return f"{', '.join(away)}: not there yet" if away else ""

    def _wait(self, say: Say) -> int:
        """Wait until none is left; one that ends is said, and the others continue."""
        while len(self._has_ended) < len(self._nodes):
            time.sleep(_POLL_S)
            for node in self._ended(say):
                say(
                    f"  The others continue. Start it again by hand:\n"
                    f"    tidemark start --config {node.config_file}"
                )
        say("no node is left")
        return 1

    def _ended(self, say: Say) -> list[NodeProcess]:
        """Those that have ended since the last look; each is said."""
        found = []
        for node in self._nodes:
            code = node.exit_code()
            if code is not None and node.name not in self._has_ended:
                self._has_ended.add(node.name)
                found.append(node)
                how = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
                say(f"{node.name} has ended: {how}, log in {node.log_file}:")
                say(f"    {node.last_words()}")
        return found

    def _stop(self, say: Say) -> None:
        say("stopping the broker(s), then the controllers; Ctrl-C again kills them")
        try:
            stop_in_order((self._brokers, self._controllers), STOP_LIMITS_MS)
        except KeyboardInterrupt:
            say("killed")

    def _welcome(self, took_s: float) -> str:
        shown = "\n".join(
            f"  {node.name}: {node.entries['listeners'].partition('://')[2]}, pages on "
            f"http://{node.entries['tidemark.http.listener']}, pid {node.pid}, log {node.log_file}"
            for node in self._nodes
        )
        controllers = self._controllers
        every = ",".join(one.entries["listeners"].partition("://")[2] for one in controllers)
        ask = ["--bootstrap-controller", every]
        broker = self._brokers[0]
        directory = broker.entries.get("rsm.config.dir")
        tier = f" {directory}" if directory else ""
        page = broker.entries["tidemark.http.listener"]
        return f"""
ready in {took_s:.1f} s
Tidemark on {self.address}: {len(controllers)} controllers and {self._shown}. Stop it with Ctrl-C.
{shown}
{first_steps(self.address, min(len(self._brokers), 3))}  http://{page}/  # in a browser
  ls {broker.home}/logs{tier}
  curl -s http://{page}/metrics | grep -i remote

Health of all nodes, and the leader:
  {typed(["status", "--bootstrap-server", self.address, *ask])}
  {typed(["metadata-quorum", *ask, "describe", "--replication"])}

Kill the leader and ask again; start it again by hand:
  kill -9 PID
  {typed(["start", "--config", f"{controllers[0].home.parent}/controller-N/server.properties"])}
"""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
