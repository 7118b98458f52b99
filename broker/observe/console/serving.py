"""Answers browsers: the page, its script and style, and the state as JSON.

The listener does not authenticate, so a browser must not be used to read it for an attacker's site.
The Host header refuses a name that an attacker points to this machine (DNS rebinding). No other
site may frame the page or load the state. Only the files of the wheel run in it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from broker.config.listeners import is_loopback
from broker.observe.console.facts import NothingYet, Source
from broker.observe.console.history import History
from broker.observe.console.selection import Activity
from broker.observe.console.state import describe, health
from broker.observe.health import Health
from broker.observe.http import HttpAnswer, HttpRequest, Reply, Respond, text_answer
from runtime.clock import Clock
from runtime.work import run_in_steps

log = logging.getLogger(__name__)

PAGE: Final = "/"
STATE: Final = "/console/state.json"
FRESH_MS: Final = 1_000
"""All requests within this time get the same state."""
SHARE: Final = 5
"""The pause between two states is at least this many times the duration of the last one."""

_FILES: Final = {
    PAGE: ("page.html", "text/html; charset=utf-8"),
    "/console/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/console/page.css": ("page.css", "text/css; charset=utf-8"),
    "/console/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


@dataclass(frozen=True, slots=True)
class Access:
    """Access rules of the page.

    Attributes:
        is_open: The page is served.
        hosts: Names besides those of loopback under which it is served, as `_canonical` writes
            them.
    """

    is_open: bool
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, listener: str, enable: bool | None, hosts: tuple[str, ...]) -> "Access":
        """Make it from the settings.

        Args:
            listener: Host of the listener; "" and other wildcards are no name.
            enable: `tidemark.console.enable`; None: only on loopback.
            hosts: `tidemark.console.hosts`.
        """
        own = _canonical(listener)
        names = {own, *map(_name_in_settings, hosts)} - {"", "0.0.0.0", "::"}
        return cls(is_loopback(own) if enable is None else enable, frozenset(names))

    def allows(self, host: str) -> bool:
        """True if a Host header, as it was sent, names this node, with any port."""
        name = _name_of(host)
        return bool(name) and (is_loopback(name) or name in self.hosts)


def _name_in_settings(text: str) -> str:
    """The host of a setting, with or without a port; IPv6 may lack its brackets."""
    is_bare_ipv6 = text.count(":") > 1 and not text.startswith("[")
    return _canonical(text) if is_bare_ipv6 else _name_of(text)


def _name_of(host: str) -> str:
    """The host of a Host header, canonical; "" if it is invalid."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        is_whole = bool(bracket) and ":" in name and (not port or port.startswith(":"))
        port = port[1:]
    else:
        name, _, port = host.partition(":")
        is_whole = True
    if not is_whole or (port and not (port.isascii() and port.isdigit())):
        return ""
    return _canonical(name)


def _canonical(host: str) -> str:
    """A name in lower case without the last dot; an address in its canonical form, without a zone.

    IPv4 in IPv6 form becomes IPv4.
    """
    name = host.lower().removesuffix(".")
    try:
        address = ip_address(name.partition("%")[0] if ":" in name else name)
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


class StateMaker:
    """Makes the state, at most once in `FRESH_MS`, in slices; requests meanwhile share it.

    Attributes:
        source: The node; empty before it runs.
        history: The last five minutes.
    """

    def __init__(self, node: Callable[[], dict[str, Any]], clock: Clock) -> None:
        """Make nothing yet.

        Args:
            node: Returns identity and health of the node; small, called for each state.
            clock: Of the process.
        """
        self.source: Source = NothingYet()
        self.history = History()
        self._node, self._clock = node, clock
        self._activity = Activity()
        self._making: asyncio.Task[bytes] | None = None
        self._last, self._last_ms, self._fresh_ms = b"", 0, FRESH_MS

    async def state(self) -> bytes:
        """The newest state."""
        if self._last and self._clock.monotonic_ms() - self._last_ms < self._fresh_ms:
            return self._last
        if self._making is None:
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)  # others may wait for it when one is cancelled

    async def _make(self) -> bytes:
        try:
            now_ms = self._clock.monotonic_ms()
            steps = describe(self.source, self._activity, self.history, now_ms)
            value = await run_in_steps(steps)
            self._last = msgspec.json.encode(self._node() | value)
            self._last_ms = self._clock.monotonic_ms()
            self._fresh_ms = max(FRESH_MS, SHARE * (self._last_ms - now_ms))
            return self._last
        finally:
            self._making = None


def node_facts(
    found: Health, version: Callable[[], str], clock: Clock
) -> Callable[[], dict[str, Any]]:
    """Make the function that returns identity and health of the node."""

    def facts() -> dict[str, Any]:
        return {
            "version": version(),
            "node_id": found.node_id,
            "kind": found.kind,
            "time_ms": clock.wall_ms(),
            "health": health(found.report()),
        }

    return facts


class Console:
    """Answers the paths of the page, and passes the rest to `others`."""

    def __init__(self, access: Access, states: StateMaker, others: Respond) -> None:
        self._access, self._states, self._others = access, states, others
        self._files = {
            path: HttpAnswer(200, kind, _read(name), headers=_HEADERS)
            for path, (name, kind) in (_FILES.items() if access.is_open else ())
        }

    def respond(self, request: HttpRequest) -> Reply:
        """Answer one request."""
        if request.path != STATE and request.path not in _FILES:
            return self._others(request)
        if not self._access.is_open:
            return text_answer(404, "this page is off; tidemark.console.enable=true serves it")
        if not self._access.allows(request.headers.get("host", "")):
            return text_answer(421, "not under this name; tidemark.console.hosts allows others")
        if request.method != "GET":
            return replace(text_answer(405, "only GET is served"), headers=(("Allow", "GET"),))
        found = self._files.get(request.path)
        return self._state() if found is None else found

    async def _state(self) -> HttpAnswer:
        body = await self._states.state()
        return HttpAnswer(200, "application/json", body, headers=_HEADERS)


def _read(name: str) -> bytes:
    return files("broker.observe.console").joinpath("static", name).read_bytes()
