"""Supervises one tier process: starts it, checks it by heartbeats, replaces one that hangs.

Runs on the broker's event loop. States:

- "down": Waiting for the lock, or for the next attempt.
- "starting": It was sent its settings, and has not answered yet.
- "configured": The storage plugin has accepted them; it waits for the broker's listener.
- "up", "stopped".

The first start has two steps. So a plugin that refuses its settings ends the broker's start before
anything is written, and the metadata manager connects when there is a listener. Each later start
runs through. Local work never waits for any of them.
"""

import asyncio
import logging
import socket
from collections.abc import Mapping
from concurrent.futures import Future as ThreadFuture
from pathlib import Path
from typing import Protocol

from broker.remote.process import start_tier_process, take_tier_lock
from kafka_protocol.errors import TidemarkError
from rlm.config import TierConfig
from rlm.link.endpoint import Endpoint, LinkEndedError, LinkFailureError, Received, Reply
from rlm.link.messages import (
    AnyMessage,
    Configure,
    Configured,
    Connect,
    Heartbeat,
    Reconfigure,
    Stop,
)
from rlm.link.socket_transport import SocketTransport, make_socket_pair
from rsm_plugins.place import StoreIdentity
from runtime.child_process import ChildProcess
from runtime.disk import OpenFile
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.scheduler import Timer

log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_MS = 1_000
HEARTBEAT_LIMIT_MS = 15_000
"""Counted in heartbeats: time in which the broker itself stood still does not count."""
STARVED_PART = 4
"""While the tier lacks a CPU a quarter of the time counts: a hung one is found in the end."""
CONFIGURE_LIMIT_MS = 60_000
STOP_LIMIT_MS = 5_000
LOCK_RETRY_MS = 50
BACKOFF_MS, BACKOFF_MAX_MS = 500, 30_000


class TierStartError(TidemarkError):
    """The tier refuses its settings; the message names key and cause."""


class Spawn(Protocol):
    """Starts a tier process with its end of the link and its lock."""

    def __call__(self, link_fd: int, lock: OpenFile) -> ChildProcess:
        """Return the running child."""
        ...


class TierEvents(Protocol):
    """Handles messages and state changes of a tier process, on the broker's event loop."""

    def on_request(self, received: Received, reply: Reply) -> None:
        """Handle a request or a report of the tier."""
        ...

    def on_up(self) -> None:
        """Handle a tier that is up; it has no partitions yet."""
        ...

    def on_down(self) -> None:
        """Handle the end of the tier; its state is lost."""
        ...


class Supervisor:
    """Owns the tier process of one broker.

    Attributes:
        state: "down", "starting", "configured", "up" or "stopped".
        reason: Why it is not up; "" when it is.
        public_settings: Names of the plugin's settings that are no secrets, prefix removed.
        store: Identity of the plugin's store; None before the plugin has accepted its settings.
    """

    def __init__(
        self,
        config: TierConfig,
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        events: TierEvents,
        spawn: Spawn = start_tier_process,
    ) -> None:
        self._config, self._disk, self._clock = config, ports.disk, ports.clock
        self._scheduler, self._loop, self._spawn = ports.scheduler, loop, spawn
        self._events = events
        self.state = "down"
        self.reason = "not started"
        self.restarts = 0
        self.public_settings: frozenset[str] = frozenset()
        self.store: StoreIdentity | None = None
        self._endpoint: Endpoint | None = None
        self._given: TierConfig | None = None  # the tier's present settings; None before it has any
        self._process: ChildProcess | None = None
        self._dying: list[ChildProcess] = []
        self._timers: list[Timer] = []
        self._last_beat_ms = 0
        self._silent_ms: float = 0
        self._starved_ms: float = 0
        self._backoff_ms = BACKOFF_MS
        self._first: asyncio.Future[None] | None = None
        self._connect_message: Connect | None = None  # None: the broker takes no connections yet

    @property
    def endpoint(self) -> Endpoint | None:
        """The link to a tier that is up, else None."""
        return self._endpoint if self.state == "up" else None

    @property
    def pid(self) -> int | None:
        """Process id of the tier, None while there is none."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the tier and wait until the storage plugin has accepted its settings.

        Raises:
            TierStartError: It refused them, or its process ended.
        """
        self._first = self._loop.create_future()
        self._attempt()
        await self._first

    async def connect(self, client_settings: Mapping[str, str]) -> None:
        """Have the metadata manager connect, and wait until the tier is up.

        Call it when the broker takes connections.

        Raises:
            TierStartError: It refused its settings, or its process ended.
        """
        self._first = self._loop.create_future()
        self._connect_message = Connect(dict(client_settings))
        if self.state == "configured" and self._endpoint is not None:
            self._connect(self._endpoint, self._connect_message)
        await self._first

    def reconfigure(self, config: TierConfig) -> None:
        """Take changed settings, for the running tier and for all later ones."""
        self._config = config
        self._hand_on()

    def _hand_on(self) -> None:
        """Send the tier settings that changed since it got its own."""
        if self._given not in (None, self._config) and self._endpoint is not None:
            self._endpoint.ask(Reconfigure(self._config))
            self._given = self._config

    def _attempt(self) -> None:
        if self.state == "stopped":
            return
        try:
            ours = self._start_process()
            endpoint = None if ours is None else self._link_over(ours)
        except OSError as error:
            self._cannot_start(error)
            return
        if endpoint is None:
            self.reason = "the tier process before still holds tier.lock"
            self._scheduler.call_later(LOCK_RETRY_MS, self._attempt)
            return
        self._endpoint = endpoint
        self.state, self.reason = "starting", "the tier process is starting"
        self._last_beat_ms, self._silent_ms = self._clock.monotonic_ms(), 0
        config, self._given = self._config, None
        answer = endpoint.ask(Configure(config))
        answer.add_done_callback(lambda done: self._configured(endpoint, config, done))
        self._timers.append(self._scheduler.every(HEARTBEAT_INTERVAL_MS, self._beat, "tier-beat"))

    def _start_process(self) -> socket.socket | None:
        """Start the child; returns our end of its link, or None while the former child is alive.

        Raises:
            OSError: No lock, no descriptors, no process; nothing is left open.
        """
        # A child whose lock file was removed is not found by the lock.
        self._dying = [process for process in self._dying if process.exit_code() is None]
        if self._dying:
            return None
        config = self._config
        lock = take_tier_lock(self._disk, Path(config.state_dir))
        if lock is None:
            return None
        try:  # once started, only the child holds the lock
            ours, theirs = make_socket_pair()
            with theirs:
                try:
                    self._process = self._spawn(theirs.fileno(), lock)
                except OSError:
                    ours.close()
                    raise
        finally:
            lock.close()
        return ours

    def _link_over(self, ours: socket.socket) -> Endpoint:
        """The link to the child that was started.

        Raises:
            OSError: The event loop cannot watch it; the child is killed.
        """
        endpoint = Endpoint(self._events.on_request, lambda: self._ended(endpoint))
        try:
            SocketTransport(ours, self._loop, endpoint)
        except OSError:
            ours.close()
            self._let_die()
            raise
        return endpoint

    def _let_die(self) -> None:
        """Kill the process; the next one starts when it is gone."""
        self._kill()
        if self._process is not None:
            self._dying.append(self._process)
            self._process = None

    def _cannot_start(self, error: OSError) -> None:
        """Try again later: descriptors, memory or disk may be there again."""
        self.reason = f"the tier process cannot be started: {error}"
        if self._fail_first(self.reason):
            return
        log.error(Incident.TIER_NOT_STARTED.line(error=str(error), ms=self._backoff_ms))
        self._try_again()

    def _fail_first(self, reason: str) -> bool:
        """Fail the broker's start if it still waits for the tier; returns whether it did."""
        if self._first is None or self._first.done():
            return False
        self.state = "stopped"
        self._first.set_exception(TierStartError(reason))
        return True

    def _try_again(self) -> None:
        self._scheduler.call_later(self._backoff_ms, self._attempt)
        self._backoff_ms = min(self._backoff_ms * 2, BACKOFF_MAX_MS)

    def _configured(
        self, endpoint: Endpoint, config: TierConfig, done: "ThreadFuture[Received]"
    ) -> None:
        if endpoint is not self._endpoint:
            return
        error = done.exception()
        if isinstance(error, LinkFailureError):
            self._refused(str(error))
        elif error is None:
            self._given = config
            self._is_configured(endpoint, done.result().message)
            self._hand_on()

    def _is_configured(self, endpoint: Endpoint, answer: object) -> None:
        if isinstance(answer, Configured):
            self.public_settings = frozenset(answer.public_settings)
            self.store = answer.store
        if self._connect_message is not None:
            self._connect(endpoint, self._connect_message)
        else:
            self.state, self.reason = "configured", "waiting for the broker's listener"
            self._step_done()

    def _connect(self, endpoint: Endpoint, message: Connect) -> None:
        self.state = "starting"
        self._silent_ms = 0
        endpoint.ask(message).add_done_callback(lambda done: self._connected(endpoint, done))

    def _connected(self, endpoint: Endpoint, done: "ThreadFuture[Received]") -> None:
        if endpoint is not self._endpoint:
            return
        error = done.exception()
        if isinstance(error, LinkFailureError):
            self._refused(str(error))
        elif error is None:
            self.state, self.reason = "up", ""
            self._silent_ms = 0
            log.info("tier process is up: pid=%s", self.pid)
            self._step_done()
            self._events.on_up()

    def _step_done(self) -> None:
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    def _refused(self, reason: str) -> None:
        log.error(Incident.TIER_SETTINGS.line(reason=reason))
        self.reason = reason
        if self._first is not None and not self._first.done():
            self.state = "stopped"
            self._first.set_exception(TierStartError(reason))
        self._kill()

    def _beat(self) -> None:
        self._dying = [process for process in self._dying if process.exit_code() is None]
        endpoint = self._endpoint
        if endpoint is None:
            return
        beat_ms = self._clock.monotonic_ms()
        # A late heartbeat means that this loop stood still; messages from then are not read yet.
        passed_ms = min(beat_ms - self._last_beat_ms, 2 * HEARTBEAT_INTERVAL_MS)
        self._last_beat_ms = beat_ms
        # A tier without a CPU cannot answer, and another one would not have a CPU either.
        self._silent_ms += max(passed_ms - self._starved_since_ms(), passed_ms / STARVED_PART)
        if self.state == "configured":  # no heartbeat is sent; a dead tier's link ends
            self._silent_ms = 0
            return
        limit_ms = HEARTBEAT_LIMIT_MS if self.state == "up" else CONFIGURE_LIMIT_MS
        if self._silent_ms > limit_ms:
            log.error(Incident.TIER_SILENT.line(ms=self._silent_ms))
            self.reason = f"silent for {self._silent_ms} ms"
            self._kill()
            endpoint.end()
        elif self.state == "up":
            endpoint.ask(Heartbeat()).add_done_callback(self._sign_of_life)

    def _starved_since_ms(self) -> float:
        """Time that a silent tier waited for CPUs since the last call."""
        if self._process is None or self._silent_ms < HEARTBEAT_INTERVAL_MS:
            self._starved_ms = 0  # reading it costs time
            return 0
        before_ms, self._starved_ms = self._starved_ms, self._process.starved_ms()
        return max(0.0, self._starved_ms - before_ms) if before_ms else 0

    def _sign_of_life(self, done: "ThreadFuture[Received]") -> None:
        if done.exception() is None:
            self._silent_ms = 0
            self._backoff_ms = BACKOFF_MS

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _ended(self, endpoint: Endpoint) -> None:
        """Handle the end of the link, on the loop's thread or on one that tried to send."""
        self._loop.call_soon_threadsafe(self._after_end, endpoint)

    def _after_end(self, endpoint: Endpoint) -> None:
        if endpoint is not self._endpoint:
            return
        was_up, self._endpoint = self.state == "up", None
        self._let_die()  # without its link it has ended, or must
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self.state == "stopped":
            self._events.on_down()
            return
        self.state = "down"
        if not self.reason:
            self.reason = "the tier process ended"
        if was_up:
            self._events.on_down()
        if self._fail_first("the tier process ended at its start"):
            return
        self.restarts += 1
        log.error(Incident.TIER_GONE.line(reason=self.reason, ms=self._backoff_ms))
        self._try_again()

    def ask(self, message: AnyMessage) -> "ThreadFuture[Received]":
        """Send a request; it fails at once with LinkEndedError while the tier is not up."""
        endpoint = self.endpoint
        if endpoint is None:
            future: ThreadFuture[Received] = ThreadFuture()
            future.set_exception(LinkEndedError(self.reason))
            return future
        return endpoint.ask(message)

    def tell(self, message: AnyMessage) -> None:
        """Send a message without an answer; dropped while the tier is not up."""
        if self.endpoint is not None:
            self.endpoint.tell(message)

    async def stop(self) -> None:
        """Cancel copies and end the tier; it is killed after `STOP_LIMIT_MS`."""
        endpoint, was = self.endpoint, self.state
        self.state, self.reason = "stopped", "stopped"
        if endpoint is not None and was == "up":
            answered = asyncio.wrap_future(endpoint.ask(Stop()), loop=self._loop)
            await asyncio.wait([answered], timeout=STOP_LIMIT_MS / 1000)
            if answered.done() and not answered.cancelled():
                answered.exception()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._endpoint is not None:
            self._endpoint.end()
        await self._reap()

    async def _reap(self) -> None:
        """Wait until all processes have ended; kills them after `STOP_LIMIT_MS`."""
        if self._process is not None:
            self._dying.append(self._process)
            self._process = None
        ends_at_ms = self._clock.monotonic_ms() + STOP_LIMIT_MS
        while self._dying:
            self._dying = [process for process in self._dying if process.exit_code() is None]
            if self._clock.monotonic_ms() > ends_at_ms:
                for process in self._dying:
                    process.kill()
            await asyncio.sleep(0.005)
