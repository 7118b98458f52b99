"""`tidemark.Broker`: a real broker in processes of its own, for a test suite.

It lives in a child process, whose guardian ends it with this process, in whatever way this process
ends. Nothing of the broker is imported here.
"""

import json
import re
import secrets
import socket
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tidemark.embedded import clients
from tidemark.embedded.errors import BrokerError, BrokerStartError
from tidemark.embedded.faults import Faults
from tidemark.embedded.guarded import Guarded

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient


TIMEOUT_S: Final = 610.0
"""A little more than the broker allows a command."""

Topics = Mapping[str, int] | Iterable[str | Mapping[str, int]]

_CHILD: Final = "tidemark.embedded.child"
_LOG_NAME: Final = "broker.log"
_LOG_LINES: Final = 20
_LOG_TAIL_BYTES: Final = 16_384
_TAKEN: Final = "Address already in use"
_ATTEMPTS: Final = 5
_CONTROLLERS_MAX: Final = 5
_CALLERS: Final = 4
"""Frames from where settings are warned of to who called `start`."""
_STOP_S_MAX: Final = 30.0


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
        raise BrokerError(f"{command}: the broker does not answer: {error!r}") from error
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
    """A Kafka-compatible broker with a remote tier, for tests.

    A context manager: started when it is entered, gone with all its data when it is left, unless
    the data directory was given.

    Attributes:
        bootstrap_servers: host:port for clients; the same after a restart.
        data_dir: where everything lies that the broker keeps.
        log_file: what the broker has said; kept with the data.
        controller_pids: processes of its controllers, by id; a test may kill or pause one.
        faults: on demand.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        topics: Topics | None = None,
        *,
        controllers: int = 0,
        start_timeout_s: float = 60.0,
    ) -> None:
        """Say what it is to be; nothing is started.

        Args:
            data_dir: where its data lie, and stay; None: in a temporary directory, which goes.
            settings: entries of server.properties; they replace those that suit a test.
            topics: names, or names with their number of partitions; created where there are none.
            controllers: processes that are only controllers, beside this one that is only a broker
                then; what ends, pauses or restarts it does so with all. 0: it is its own one.
            start_timeout_s: how long a start may take.
        """
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        self._settings = {name: _text(value) for name, value in (settings or {}).items()}
        self._topics = _partitions_of(topics or ())
        if not 0 <= controllers <= _CONTROLLERS_MAX:
            raise ValueError(f"controllers={controllers}: must be 0 to {_CONTROLLERS_MAX}")
        self._controllers = controllers
        self.controller_pids: dict[int, int] = {}
        self._start_timeout_s = start_timeout_s
        self._token = secrets.token_urlsafe(24)
        self._port, self._offset_ms, self._starts = 0, 0, 0
        self._has_started = False
        self._guarded: Guarded | None = None
        self._bootstrap_servers = self._control_address = ""
        self._lock = RLock()
        self.faults = Faults(self.control, lambda: self._starts)

    # -- life

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Start it, on the data that are there; nothing happens where it runs.

        Raises:
            BrokerStartError: it does not start; with the last lines of its log. Where it has run
                before, its data stay for another try.
        """
        with self._lock:
            if self.is_running:
                return self
            try:
                if self._guarded is None:
                    self._guarded = Guarded(own_directory=self._given_dir is None)
                    self.data_dir.mkdir(parents=True, exist_ok=True)
                self._start(self._guarded)
                if self._topics and not self._has_started:
                    clients.create_topics(self.admin(), self._topics)
                self._has_started = True
            except BaseException:
                self._start_failed()
                raise
        return self

    def _start_failed(self) -> None:
        if not self._has_started:
            self.close()
            return
        try:
            self.kill()
        except (BrokerError, TimeoutError):
            self.close()  # its guardian is gone

    def close(self) -> None:
        """End it for good; what lay in a temporary directory is removed.

        With a given data directory it is stopped as a broker is, else it is killed. A process that
        was forked from the one that started it ends nothing.
        """
        with self._lock:
            try:
                is_ours = self._guarded is not None and self._guarded.is_ours
                if self._given_dir is not None and is_ours and self.is_running:
                    with suppress(BrokerError, TimeoutError):
                        self.stop()
            finally:
                guarded, self._guarded = self._guarded, None
                # What starts after this is another broker.
                self._port, self._offset_ms, self._has_started = 0, 0, False
                if guarded is not None:
                    guarded.close()

    def stop(self) -> None:
        """Stop it as an operator does; the data stay for `start`.

        Raises:
            BrokerError: it does not end in time, and is killed.
        """
        with self._lock:
            if not self.is_running:
                return
            guarded = self._running()
            guarded.request("stop")
            try:
                guarded.event("ended", _STOP_S_MAX)
            except TimeoutError:
                self.kill()
                raise BrokerError(
                    f"the broker does not stop within {_STOP_S_MAX:.0f} s and is killed\n"
                    f"{self._last_words()}"
                ) from None

    def kill(self) -> None:
        """Kill it with SIGKILL, and its tier; the data stay as they are, for `start`."""
        with self._lock:
            if not self.is_running:
                return
            guarded = self._running()
            guarded.request("kill")
            try:
                guarded.event("ended", _STOP_S_MAX)
            except TimeoutError as error:
                raise BrokerError(f"the broker is killed, and does not end: {error}") from None

    def restart(self) -> None:
        """Stop it if it runs and start it on the same data, port and clock.

        Raises:
            BrokerError: it does not stop, or does not start.
        """
        with self._lock:
            self.stop()
            self.start()

    def pause(self) -> None:
        """Have it stand still with all its connections open, until `resume`.

        Raises:
            BrokerError: it does not run.
        """
        with self._lock:
            self._running().request("pause")

    def resume(self) -> None:
        """Let it go on after `pause`.

        Raises:
            BrokerError: it does not run.
        """
        with self._lock:
            self._running().request("resume")

    @property
    def is_running(self) -> bool:
        """Whether there is a broker process, a paused one included; never waits."""
        guarded = self._guarded
        if guarded is None:
            return False
        if self._lock.acquire(blocking=False):  # else another thread starts or ends it just now
            try:
                guarded.poll()
            except BrokerError:  # the guardian is gone, and the broker with it
                return False
            finally:
                self._lock.release()
        return guarded.pid is not None

    # -- facts

    @property
    def bootstrap_servers(self) -> str:
        """host:port for clients.

        Raises:
            BrokerError: it was never started.
        """
        if not self._bootstrap_servers:
            raise BrokerError("the broker is not started: use `with tidemark.Broker() as broker:`")
        return self._bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """Where its data lie.

        Raises:
            BrokerError: in a temporary directory, which is made at the start and goes at the end.
        """
        if self._given_dir is not None:
            return self._given_dir
        if self._guarded is None:
            raise BrokerError("the broker is not started, so its directory does not exist")
        return Path(self._guarded.directory)

    @property
    def log_file(self) -> Path:
        """What the broker has said so far."""
        return self.data_dir / _LOG_NAME

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

    # -- what only a test wants

    def advance(self, duration: str | timedelta) -> None:
        """Let time pass for broker and tier; what is due by then is done when this returns.

        Only the wall clock moves: retention, rolling, expiry, timestamp checks. Sessions and
        deadlines do not notice. It stays moved after a restart.

        Args:
            duration: a timedelta, or a text such as "8d", "90m", "1h30m".

        Raises:
            BrokerError: it does not run, or what is due is not done in time.
            ValueError: no duration.
        """
        self.control("advance", ms=duration_ms(duration))

    def tier(self, topic: str, *, timeout_s: float = 60.0) -> list[dict[str, int]]:
        """Have all of a topic copied to the remote tier and dropped here; reads come from there.

        Args:
            topic: with `remote.storage.enable=true`.
            timeout_s: how long it may take.

        Returns:
            For each partition: partition, copied_from (inclusive), copied_through (inclusive),
            log_start_offset, local_log_start_offset, log_end_offset.

        Raises:
            BrokerError: there is no such topic, it is not tiered, or it takes too long.
        """
        answer = self.control("tier", topic=topic, timeout_ms=int(timeout_s * 1000))
        found: list[dict[str, int]] = answer["partitions"]
        return found

    def status(self) -> dict[str, Any]:
        """Stage, health with reasons, wall clock, and the tier's process."""
        return self.control("status")

    def control(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a command to the control listener.

        Raises:
            BrokerError: it does not run, or refuses.
        """
        if not self.is_running:
            raise BrokerError(f"{command}: the broker does not run; start() starts it again")
        if self._guarded is not None and self._guarded.is_paused:
            raise BrokerError(f"{command}: the broker is paused; resume() lets it go on")
        try:
            return self._send(command, arguments)
        finally:
            if command == "advance":  # also where it says that something is not done in time
                self._note_offset()

    # -- inside

    def _send(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return send(self._control_address, self._token, command, arguments)

    def _note_offset(self) -> None:
        """How far the clock is moved, for the next start."""
        with suppress(BrokerError):  # it has ended meanwhile
            self._offset_ms = int(self._send("status", {})["offset_ms"])

    def _running(self) -> Guarded:
        if self._guarded is None or self._guarded.pid is None:
            raise BrokerError("the broker does not run; start() starts it again")
        return self._guarded

    def _start(self, guarded: Guarded) -> None:
        """Start the process; another port is taken where somebody else was quicker."""
        for attempt in range(_ATTEMPTS):
            was_chosen = self._port == 0
            self._port = self._port or free_port()
            if self._try(guarded):
                return
            words = self._last_words()
            if not was_chosen or _TAKEN not in words or attempt + 1 == _ATTEMPTS:
                raise BrokerStartError(f"the broker ended at its start\n{words}")
            self._port = 0

    def _try(self, guarded: Guarded) -> bool:
        """Start the process once; False where it ended."""
        given = {
            "data": str(self.data_dir),
            "port": self._port,
            "token": self._token,
            "offset_ms": self._offset_ms,
            "settings": self._settings,
            "controllers": self._controller_ports(),
        }
        self._starts += 1
        guarded.start(_CHILD, given, self.log_file)
        try:
            event = guarded.event("ready", self._start_timeout_s)
        except TimeoutError:
            raise BrokerStartError(
                f"the broker is not ready within {self._start_timeout_s:g} s (start_timeout_s)\n"
                f"{self._last_words()}"
            ) from None
        if event["event"] != "ready":
            return False
        self._bootstrap_servers = str(event["bootstrap_servers"])
        self._control_address = str(event["control_address"])
        self.controller_pids = dict(enumerate(map(int, event["controller_pids"]), 1))
        for text in event["warnings"]:
            warnings.warn(f"settings of the broker: {text}", stacklevel=_CALLERS)
        return True

    def _controller_ports(self) -> list[int]:
        """Other ones at each start: only nodes of this cluster need to know them."""
        found = {self._port}
        while len(found) <= self._controllers:
            found.add(free_port())
        return sorted(found - {self._port})

    def _last_words(self) -> str:
        """The end of the log."""
        try:
            data = self.log_file.read_bytes()[-_LOG_TAIL_BYTES:]
        except OSError as error:
            return f"(its log cannot be read: {error})"
        lines = data.decode(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"last lines of {self.log_file}:", *(f"  {line}" for line in lines)])


def _text(value: object) -> str:
    """A setting as server.properties has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _partitions_of(topics: Topics) -> dict[str, int]:
    """Partitions by name of topic."""
    if isinstance(topics, str):
        raise TypeError(f"topics={topics!r}: must be a list of names, or {{name: partitions}}")
    if isinstance(topics, Mapping):
        return dict(topics)
    found: dict[str, int] = {}
    for one in topics:
        found.update(one if isinstance(one, Mapping) else {one: 1})
    return found


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


_PORTS: Final = range(10_000, 32_000)
"""Below those that Linux gives to connections: while the broker is down, no client gets it, least
of all one that tries to connect to it."""
_PORTS_TRIED: Final = 200


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on right now.

    Raises:
        OSError: none of many is free.
    """
    # Not the generator that suites seed: workers would all find the same port, and a test that
    # seeds it would get other numbers.
    for port in SystemRandom().sample(_PORTS, _PORTS_TRIED):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"none of {_PORTS_TRIED} ports of {host} is free")
