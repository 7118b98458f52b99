"""`tidemark.Broker`: a real broker, or several, in processes of their own, for a test suite.

Each node lives in a child process, whose guardian ends it with this process, in whatever way this
process ends. Nothing of the broker is imported here.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tidemark.embedded import clients, log_lines
from tidemark.embedded.errors import BrokerError
from tidemark.embedded.faults import Faults
from tidemark.embedded.guarded import Guarded
from tidemark.embedded.nodes import Nodes
from tidemark.embedded.topics import Topics, new_topic, setting_text, topics_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient


__tracebackhide__ = True
"""pytest shows the test's line and the message, and none of ours between them (--full-trace)."""
TIMEOUT_S: Final = 610.0
"""A little more than the broker allows a command."""


def send(address: str, token: str, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Send one command and return its answer.

    Raises:
        BrokerError: the broker refuses it, or does not answer.
    """
    import http.client  # not before a command is sent: it imports much

    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request(
            "POST",
            f"/v1/{command}",
            json.dumps(arguments).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BrokerError(f"{command}: the broker does not answer: {error!r}") from None
    finally:
        connection.close()
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        answer = {"error": text.decode(errors="replace").strip()}
    if response.status != 200:
        raise BrokerError(f"{command}: {answer.get('error', answer)}")
    return answer


class Broker:
    """A Kafka-compatible broker with a remote tier, or several that share one store, for tests.

    A context manager: started when it is entered, gone with all its data when it is left, unless
    the data directory was given. Several brokers have the ids 11, 12 and so on, controllers 1, 2
    and so on. Where a method takes the id of a node, it concerns that node alone; without an id all
    of them.

    Attributes:
        bootstrap_servers: host:port for clients, of all brokers; the same after a restart.
        data_dir: where everything lies that the nodes keep.
        log_file: what the (first) broker has said; kept with the data, those of others beside it.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        topics: Topics | None = None,
        *,
        brokers: int = 1,
        controllers: int = 0,
        start_timeout_s: float = 60.0,
    ) -> None:
        """Say what it is to be; nothing is started.

        Args:
            data_dir: where its data lie, and stay; None: in a temporary directory, which goes.
            settings: entries of server.properties; they replace those that suit a test.
            topics: created where there are none: names; names with their number of partitions,
                `{"clicks": 3}`; or mappings with name, partitions and configs.
            brokers: how many; three keep three copies of each partition.
            controllers: processes that are only controllers, beside brokers that are only brokers.
                0: a lone broker is its own one, several have one beside them.
            start_timeout_s: how long a start may take.

        Raises:
            TypeError, ValueError: `topics` are not understood.
        """
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        given = {name: setting_text(value) for name, value in (settings or {}).items()}
        self._nodes = Nodes(brokers, controllers, given, start_timeout_s)
        self._topics = topics_of(topics or ())
        self._has_started = False
        self._lock = RLock()
        self._faults = {
            one: Faults(partial(self._control, one), partial(self._nodes.starts.__getitem__, one))
            for one in self._nodes.brokers
        }

    def __repr__(self) -> str:
        where = self._nodes.bootstrap_servers
        if not where:
            return "<tidemark.Broker, not started>"
        running = self._pids(self._nodes.ids)
        states = [
            f"node {one} " + ("runs" if one in running else "does not run")
            for one in self._nodes.ids
        ]
        return f"<tidemark.Broker {where}: {', '.join(states)}>"

    # -- lifecycle

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and (said := self._warnings()):
            error.add_note(f"warnings of the broker:\n{said}")  # its log may go with it
        self.close()

    def _warnings(self) -> str:
        try:
            return log_lines.warnings_since(self.log_files, {})
        except BrokerError:  # it was closed already
            return ""

    def start(self, node_id: int | None = None) -> Self:
        """Start it, on the data that are there; nothing happens where it runs.

        Raises:
            BrokerStartError: a node does not start; with the last lines of its log. Where it has
                run before, its data stay for another try, and the other nodes continue.
        """
        with self._lock:
            missing = [one for one in self._meant(node_id) if not self._runs(one)]
            if not missing:
                return self
            nodes = self._nodes
            try:
                if nodes.guarded is None:
                    nodes.guarded = Guarded(own_directory=self._given_dir is None)
                    self.data_dir.mkdir(parents=True, exist_ok=True)
                nodes.start(missing, self.data_dir)
                if self._topics and not self._has_started:
                    clients.create_topics(self.admin(), self._topics)
                self._has_started = True
            except BaseException:
                self._start_failed(missing)
                raise
        return self

    def _start_failed(self, node_ids: Iterable[int]) -> None:
        if not self._has_started:
            self.close()
            return
        try:
            self._nodes.kill(node_ids)
        except (BrokerError, TimeoutError):
            self.close()  # its guardian is gone

    def close(self) -> None:
        """End it permanently; what lay in a temporary directory is removed.

        With a given data directory it is stopped as a broker is, else it is killed. A process that
        was forked from the one that started it ends nothing.
        """
        with self._lock:
            guarded = self._nodes.guarded
            try:
                is_ours = guarded is not None and guarded.is_ours
                if self._given_dir is not None and is_ours and self.is_running:
                    with suppress(BrokerError, TimeoutError):
                        self.stop()
            finally:
                self._has_started = False
                self._nodes.close()

    def stop(self, node_id: int | None = None) -> None:
        """Stop it as an operator does; the data stay for `start`. One that is cut off is not then.

        Raises:
            BrokerError: it does not end in time, and is killed.
        """
        with self._lock:
            if running := self._running(node_id):
                self._nodes.stop(running, self.data_dir)

    def kill(self, node_id: int | None = None) -> None:
        """Kill it with SIGKILL, and its tier; the data stay as they are, for `start`."""
        with self._lock:
            if running := self._running(node_id):
                self._nodes.kill(running)

    def restart(self, node_id: int | None = None) -> None:
        """Stop it if it runs and start it on the same data, port and clock.

        Raises:
            BrokerError: it does not stop, or does not start.
        """
        with self._lock:
            self.stop(node_id)
            self.start(node_id)

    def pause(self, node_id: int | None = None) -> None:
        """Have it stand still with all its connections open, until `resume`.

        Raises:
            BrokerError: it does not run.
        """
        self._have("pause", node_id)

    def resume(self, node_id: int | None = None) -> None:
        """Let it continue after `pause`.

        Raises:
            BrokerError: it does not run.
        """
        self._have("resume", node_id)

    def _have(self, do: str, node_id: int | None) -> None:
        with self._lock:
            running = self._running(node_id)
            if not running:
                raise BrokerError(f"{self._shown(node_id)} does not run; start() starts it again")
            for one in running:
                self._guarded.request(do, one)

    def isolate(self, node_id: int | None = None, *, clients: bool = True) -> None:
        """Cut a broker off from all other nodes until `heal`, or until it is stopped or killed.

        Its connections to brokers and controllers end, in both directions, and new ones fail at
        once. Its clocks continue: it loses its session as one that is lost does.

        Args:
            node_id: of the broker; None: each is alone.
            clients: whether clients lose it, too; False: they reach it as before.

        Raises:
            BrokerError: it does not run, or is paused, or is a controller; or `clients` is False
                and there is but one broker.
        """
        for one in self._brokers(node_id):
            self._control(one, "isolate", clients=clients)

    def heal(self, node_id: int | None = None) -> None:
        """Connect a broker again after `isolate`; nothing happens where it is connected.

        Raises:
            BrokerError: it does not run, or is paused, or is a controller.
        """
        for one in self._brokers(node_id):
            self._control(one, "heal")

    def restore(self) -> None:
        """Start, resume and heal all nodes; return when all brokers may have replicas again.

        Raises:
            BrokerError: one does not start, or is not back in time.
        """
        with self._lock:
            self.start().resume()
            self.heal()
            if len(self._nodes.brokers) > 1:
                clients.wait_for_brokers(self.admin(), len(self._nodes.brokers))

    @property
    def is_running(self) -> bool:
        """Whether there is a broker process, a paused one included; never waits."""
        return any(self._runs(one) for one in self._nodes.brokers)

    def _runs(self, node_id: int) -> bool:
        guarded = self._nodes.guarded
        if guarded is None:
            return False
        if self._lock.acquire(blocking=False):  # else another thread starts or ends it just now
            try:
                guarded.poll()
            except BrokerError:  # the guardian is gone, and the nodes with it
                return False
            finally:
                self._lock.release()
        return node_id in guarded.pids

    def _meant(self, node_id: int | None) -> tuple[int, ...]:
        """Nodes that an id stands for.

        Raises:
            BrokerError: there is none of that id.
        """
        ids = self._nodes.ids
        if node_id is not None and node_id not in ids:
            raise BrokerError(f"there is no node {node_id}; there are: {_listed(ids)}")
        return ids if node_id is None else (node_id,)

    def _running(self, node_id: int | None) -> list[int]:
        return [one for one in self._meant(node_id) if self._runs(one)]

    def _brokers(self, node_id: int | None) -> tuple[int, ...]:
        """Brokers that an id stands for.

        Raises:
            BrokerError: it stands for none.
        """
        found = tuple(one for one in self._meant(node_id) if one in self._nodes.brokers)
        if not found:
            raise BrokerError(
                f"node {node_id} is a controller; the brokers are: {_listed(self._nodes.brokers)}"
            )
        return found

    def _shown(self, node_id: int | None) -> str:
        return "the broker" if node_id is None or len(self._nodes.ids) == 1 else f"node {node_id}"

    # -- facts

    @property
    def bootstrap_servers(self) -> str:
        """host:port for clients, of all brokers.

        Raises:
            BrokerError: it was never started.
        """
        if not self._nodes.bootstrap_servers:
            raise BrokerError("the broker is not started: use `with tidemark.Broker() as broker:`")
        return self._nodes.bootstrap_servers

    @property
    def console_url(self) -> str:
        """Address of the (first) broker's page, to look at while a debugger waits.

        Another one after each start, unless `tidemark.http.listener` is set.

        Raises:
            BrokerError: it was never started, or its page is off.
        """
        found = self._nodes.console_urls.get(self._nodes.brokers[0])
        if found is None:
            raise BrokerError("the broker is not started, so it has no page")
        if not found:
            raise BrokerError(
                "the broker has no page: tidemark.http.listener is empty, or "
                "tidemark.console.enable does not serve one there"
            )
        return found

    @property
    def broker_pids(self) -> dict[int, int]:
        """Processes of the brokers that run, by id."""
        return self._pids(self._nodes.brokers)

    @property
    def controller_pids(self) -> dict[int, int]:
        """Processes of nodes that run and are only controllers, by id."""
        return self._pids(self._nodes.controllers)

    def _pids(self, node_ids: Iterable[int]) -> dict[int, int]:
        return {one: self._guarded.pids[one] for one in node_ids if self._runs(one)}

    @property
    def data_dir(self) -> Path:
        """Where its data lie.

        Raises:
            BrokerError: in a temporary directory, which is made at the start and goes at the end.
        """
        if self._given_dir is not None:
            return self._given_dir
        if self._nodes.guarded is None:
            raise BrokerError("the broker is not started, so its directory does not exist")
        return Path(self._nodes.guarded.directory)

    @property
    def log_file(self) -> Path:
        """The log of the (first) broker; logs of other nodes lie beside it."""
        return self._nodes.log_file(self.data_dir, self._nodes.brokers[0])

    @property
    def log_files(self) -> dict[int, Path]:
        """The log file of each node, by its id."""
        return {one: self._nodes.log_file(self.data_dir, one) for one in self._nodes.ids}

    # -- clients, of confluent_kafka

    def producer(self, **config: Any) -> "Producer":
        """Make a producer; settings as keywords with `_` for `.`, or as `**{"linger.ms": 5}`."""
        return clients.producer(self.bootstrap_servers, config)

    def consumer(self, group_id: str | None = None, **config: Any) -> "Consumer":
        """Make a consumer that begins at the earliest record.

        Args:
            group_id: its group; None: none, for `assign`.
            config: settings, as of `producer`.
        """
        return clients.consumer(self.bootstrap_servers, group_id, config)

    def admin(self, **config: Any) -> "AdminClient":
        """Make an admin client; settings as of `producer`."""
        return clients.admin(self.bootstrap_servers, config)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic, with the broker's default replication factor.

        Args:
            name: its name.
            partitions: how many.
            configs: its settings, such as `{"remote.storage.enable": True}`.

        Returns:
            Its name.

        Raises:
            BrokerError: the broker refuses it, or there is one of that name.
            TypeError, ValueError: one of the arguments cannot be.
        """
        wanted = new_topic("create_topic", name, partitions, configs)
        clients.create_topics(self.admin(), [wanted], may_exist=False)
        return name

    # -- what only a test wants

    def advance(self, duration: str | timedelta) -> None:
        """Let time pass for brokers and tier; what is due by then is done when this returns.

        Only the wall clock moves: retention, rolling, expiry, timestamp checks. Sessions and
        deadlines do not notice. It stays moved after a restart.

        Args:
            duration: a timedelta, or a text such as "8d", "90m", "1h30m".

        Raises:
            BrokerError: no broker runs, one is paused, or what is due is not done in time.
            ValueError: no duration.
        """
        ms = duration_ms(duration)
        with self._lock:
            running = [one for one in self._nodes.brokers if self._runs(one)]
            for one in running or self._nodes.brokers:
                self._address_of(one, "advance")
            for one in running:
                self._control(one, "advance", ms=ms)

    def tier(self, topic: str, *, timeout_s: float = 60.0) -> list[dict[str, int]]:
        """Have all of a topic copied to the remote tier and dropped here; reads come from there.

        Args:
            topic: with `remote.storage.enable=true`.
            timeout_s: how long it may take.

        Returns:
            For each partition: partition, copied_from (inclusive), copied_through (inclusive),
            log_start_offset, local_log_start_offset, log_end_offset.

        Raises:
            BrokerError: there is no such topic, it is not tiered, it takes too long, or there are
                several brokers.
        """
        answer = self.control("tier", topic=topic, timeout_ms=int(timeout_s * 1000))
        found: list[dict[str, int]] = answer["partitions"]
        return found

    @property
    def faults(self) -> Faults:
        """Faults on demand, of the only broker.

        Raises:
            BrokerError: there are several: `faults_on`.
        """
        return self._faults[self._only(None, "faults")]

    def faults_on(self, node_id: int) -> Faults:
        """Faults on demand, of one broker.

        Raises:
            BrokerError: there is no such broker.
        """
        return self._faults[self._only(node_id, "faults")]

    def faults_in_force(self) -> str:
        """A line for each fault that was added here and is in force, of all brokers that run."""
        shown = list[str]()
        for node_id in self.broker_pids:
            with suppress(BrokerError):  # it is paused, or is just ending
                shown += map(repr, self._faults[node_id].in_force())
        return "\n".join(shown)

    def status(self, node_id: int | None = None) -> dict[str, Any]:
        """Stage, health with reasons, wall clock, and the tier's process, of one broker."""
        return self.control("status", node_id)

    def control(
        self, command: str, node_id: int | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        """Send a command to the control listener of one broker; None: the only one.

        Raises:
            BrokerError: it does not run, or refuses.
        """
        return self._control(self._only(node_id, command), command, **arguments)

    # -- inside

    @property
    def _guarded(self) -> Guarded:
        assert self._nodes.guarded is not None
        return self._nodes.guarded

    def _only(self, node_id: int | None, what: str) -> int:
        found = self._brokers(node_id)
        if len(found) > 1:
            raise BrokerError(f"{what}: of which broker? There are: {_listed(found)}")
        return found[0]

    def _control(self, node_id: int, command: str, **arguments: Any) -> dict[str, Any]:
        address = self._address_of(node_id, command)
        try:
            return send(address, self._nodes.token, command, arguments)
        finally:
            if command == "advance":  # also where it says that something is not done in time
                self._note_offset(address)

    def _address_of(self, node_id: int, command: str) -> str:
        """Where the control listener of a broker is that can answer.

        Raises:
            BrokerError: it does not run, or is paused.
        """
        shown = self._shown(node_id)
        if not self._runs(node_id):
            raise BrokerError(f"{command}: {shown} does not run; start() starts it again")
        if node_id in self._guarded.paused:
            raise BrokerError(f"{command}: {shown} is paused; resume() lets it continue")
        return self._nodes.control_address(node_id)

    def _note_offset(self, address: str) -> None:
        """How far the clock is moved, for the next start."""
        with suppress(BrokerError):  # it has ended meanwhile
            said = send(address, self._nodes.token, "status", {})
            self._nodes.offset_ms = max(self._nodes.offset_ms, int(said["offset_ms"]))


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"(\d{1,12})(ms|[smhdw])")


def duration_ms(duration: "str | timedelta") -> int:
    """Milliseconds of a duration.

    Args:
        duration: a timedelta, or numbers with ms, s, m, h, d or w, such as "8d" or "1h30m".

    Raises:
        ValueError: it is none, or negative.
    """
    if isinstance(duration, timedelta):
        ms = duration // timedelta(milliseconds=1)
        if ms < 0:
            raise ValueError(f"{duration}: time goes forward only")
        return ms
    parts = _PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(
            f"{duration!r} is no duration; write a timedelta, or a text such as '8d', '90m', "
            f"'1h30m' (units: {', '.join(_MS)})"
        )
    return sum(int(number) * _MS[unit] for number, unit in parts)
