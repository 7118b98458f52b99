"""The commands of the control listener for faults.

    faults.add        fields of RequestFault -> {"id": 1, ...}
    faults.add_store  fields of StoreFault -> {"id": 2, ...}
    faults.remove     id -> the fault with its hits
    faults.clear      -> {"removed": [...]}
    faults.list       -> {"faults": [...]}
    faults.wait       id, hits, timeout_ms -> the fault; "reached": true if it has so many hits

A fault in an answer has its fields, its number of hits, the newest of them, and whether it is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from broker.network.dispatch import Dispatcher
from broker.remote.tier import RemoteTier
from broker.testing.control.commands import ControlCommands, ControlError, number_of
from broker.testing.faults.book import Entry, FaultBook, Hit
from broker.testing.faults.interceptor import Interceptor
from broker.testing.faults.naming import NameOf
from broker.testing.faults.rule import FaultError, RequestFault, parse
from broker.testing.faults.store import described, for_tier, parse_store_fault
from rlm.link.messages import StoreFaultHit
from rsm_plugins.store_faults import StoreFault
from runtime.ports import Ports
from runtime.rng import seeded

WAIT_MS_MAX: Final = 600_000
HITS_SHOWN: Final = 100


class FaultService:
    """Owns the book of one broker, and puts it in force."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        served: Collection[int],
        name_of: NameOf,
        tier: RemoteTier | None,
        ports: Ports,
        spared_listener: str = "",
    ) -> None:
        """Put nothing in force yet.

        Args:
            dispatcher: Of clients' requests.
            served: Numbers of the APIs that clients are served.
            name_of: Finds a topic by its id.
            tier: None without a remote tier.
            ports: Clock, scheduler.
            spared_listener: Of the brokers alone; requests on it are never hit.
        """
        self._dispatcher, self._served, self._tier = dispatcher, served, tier
        self._clock, self._scheduler = ports.clock, ports.scheduler
        self._book = FaultBook(seeded)
        self._interceptor = Interceptor(self._book, name_of, ports, spared_listener)
        self._interceptor.on_hit = self._was_hit
        self._waiting: dict[asyncio.Future[None], tuple[Entry, int]] = {}
        self._wrapped: list[int] = []
        if tier is not None:
            tier.store_faults = self._store_faults
            tier.on_store_fault = self._store_was_hit

    def register(self, commands: ControlCommands) -> None:
        """Add the commands."""
        for name, command in (
            ("faults.add", self._add),
            ("faults.add_store", self._add_store),
            ("faults.remove", self._remove),
            ("faults.clear", self._clear),
            ("faults.list", self._list),
            ("faults.wait", self._wait),
        ):
            commands.add(name, _refusing(command))

    # -- commands

    async def _add(self, said: dict[str, Any]) -> dict[str, Any]:
        entry = self._book.add(parse(said, self._served))
        self._wrap()
        return shown(entry)

    async def _add_store(self, said: dict[str, Any]) -> dict[str, Any]:
        if self._tier is None:
            raise FaultError(
                "there is no remote store: remote.log.storage.system.enable is false here"
            )
        entry = self._book.add(parse_store_fault(said))
        await self._tier.set_store_faults()
        return shown(entry)

    async def _remove(self, said: dict[str, Any]) -> dict[str, Any]:
        entry = self._book.remove(number_of(said, "id"))
        await self._removed([entry])
        return shown(entry)

    async def _clear(self, _: dict[str, Any]) -> dict[str, Any]:
        gone = self._book.clear()
        await self._removed(gone)
        return {"removed": [shown(entry) for entry in gone]}

    async def _list(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"faults": [shown(entry) for entry in self._book]}

    async def _wait(self, said: dict[str, Any]) -> dict[str, Any]:
        entry = self._book.get(number_of(said, "id"))
        hits = number_of(said, "hits", 1)
        timeout_ms = min(max(number_of(said, "timeout_ms", 0), 0), WAIT_MS_MAX)
        if entry.hits < hits and timeout_ms:
            await self._hits_or_time(entry, hits, timeout_ms)
        return {**shown(entry), "reached": entry.hits >= hits}

    async def _hits_or_time(self, entry: Entry, hits: int, timeout_ms: int) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = (entry, hits)
        timer = self._scheduler.call_later(timeout_ms, lambda: _settle(done))
        try:
            await done
        finally:
            timer.cancel()
            self._waiting.pop(done, None)

    # -- in force

    def _wrap(self) -> None:
        """Wrap the routes if the live faults have changed; none while no fault is in force."""
        live = [one.id for one in self._book if _is_of_requests(one) and not one.is_over]
        if live != self._wrapped:
            self._wrapped = live
            self._dispatcher.wrap_routes(self._interceptor.wrap if live else None)

    async def _removed(self, entries: list[Entry]) -> None:
        self._wrap()
        self._interceptor.release()
        for done, (entry, _) in list(self._waiting.items()):
            if entry in entries:
                _settle(done)
        is_of_store = any(not _is_of_requests(one) for one in entries)
        if is_of_store and self._tier is not None:
            await self._tier.set_store_faults()

    def _was_hit(self) -> None:
        self._wrap()  # the last hit of a fault ends it
        for done, (entry, hits) in list(self._waiting.items()):
            if entry.hits >= hits:
                _settle(done)

    # -- the store

    def _store_faults(self) -> list[StoreFault]:
        return [for_tier(one) for one in self._book if not _is_of_requests(one) and not one.is_over]

    def _store_was_hit(self, hit: StoreFaultHit) -> None:
        entry = next((one for one in self._book if one.id == hit.fault_id), None)
        if entry is not None:
            entry.hit(Hit(self._clock.wall_ms(), hit.call.value, 0, hit.topic))
            self._was_hit()


def _is_of_requests(entry: Entry) -> bool:
    return isinstance(entry.fault, RequestFault)


def _settle(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


def shown(entry: Entry) -> dict[str, Any]:
    """A fault in the form of an answer."""
    fault = entry.fault
    said = fault.described() if isinstance(fault, RequestFault) else described(fault)
    names = ("at_ms", "api", "version", "client_id")
    if not isinstance(fault, RequestFault):
        names = ("at_ms", "call", "", "topic")
    last = [
        {name: value for name, value in zip(names, _values(hit), strict=True) if name}
        for hit in list(entry.last)[-HITS_SHOWN:]
    ]
    return {"id": entry.id, **said, "hits": entry.hits, "over": entry.is_over, "last_hits": last}


def _values(hit: Hit) -> tuple[object, ...]:
    return hit.at_ms, hit.what, hit.version, hit.client_id


def _refusing(
    command: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
    """A command that answers a `FaultError` as wrong arguments."""

    async def run(said: dict[str, Any]) -> dict[str, Any]:
        try:
            return await command(said)
        except FaultError as error:
            raise ControlError(str(error)) from None

    return run
