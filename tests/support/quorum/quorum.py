"""Several controllers of one kind, their network, and what they say of themselves."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Self, TypeVar

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import free_ports
from tests.support.quorum.controllers import DESCRIBED, Controller, Member, Membership
from tests.support.quorum.links import Links
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection

T = TypeVar("T")
LEADER_S = 60.0
SETTLED_S = 60.0
ASKED_S = 0.5


async def until(look: Callable[[], T], what: str, *, deadline_s: float) -> T:
    """Look again and again until there is something; fail naming `what` at the deadline."""
    deadline = time.monotonic() + deadline_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.01)


async def until_asked(look: Callable[[], T], what: str, *, deadline_s: float) -> T:
    """As `until`, with a look that waits for a network: on a thread."""
    deadline = time.monotonic() + deadline_s
    while True:
        found = await asyncio.to_thread(look)
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.05)


async def until_stalled(
    look: Callable[[], T], progress: Callable[[], object], what: str, *, stalled_s: float
) -> T:
    """As `until_asked`, but it fails only when `progress` has been the same for so long.

    Patient with a machine that has much else to do, and not with a wait that leads nowhere.
    """
    last, since = progress(), time.monotonic()
    while True:
        found = await asyncio.to_thread(look)
        if found:
            return found
        now = await asyncio.to_thread(progress)
        if now != last:
            last, since = now, time.monotonic()
        assert time.monotonic() < since + stalled_s, f"no progress for {stalled_s} s: {what}"
        await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Leader:
    """What a controller that leads says.

    Attributes:
        ends: log end (exclusive) of each voter, by node id; -1 where it is not known.
        observers: the same of observers.
    """

    node_id: int
    epoch: int
    high_watermark: int
    ends: Mapping[int, int]
    observers: Mapping[int, int]


@dataclass(frozen=True)
class Plan:
    """What a quorum is made of.

    Attributes:
        kind: of controllers.
        has_links: the controllers reach each other through proxies, whose links can be cut.
        settings: of each controller, over the usual ones.
    """

    kind: type[Controller]
    is_dynamic: bool
    count: int = 3
    has_links: bool = True
    settings: Mapping[str, str] | None = None


class Quorum:
    """Use it in an `async with` block: started, and leaving no process behind.

    Attributes:
        controllers: by node id, from 1.
        links: the proxies; None without them.
    """

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.plan = plan
        self.directory = directory
        ids = range(1, plan.count + 1)
        own_ports = dict(zip(ids, free_ports(plan.count), strict=True))
        self.links = Links(own_ports) if plan.has_links else None
        ports = self.links.ports if self.links else own_ports
        self._talks: list[NodeConnection] = []
        directory_ids = Random(str(directory))
        self.membership = Membership(
            tuple(Member(one, ports[one], directory_ids.randbytes(16)) for one in ids),
            plan.is_dynamic,
        )
        self.controllers = {one: self.made(one) for one in ids}
        for one, controller in self.controllers.items():
            controller.port = own_ports[one]

    def talk(self, node_id: int) -> NodeConnection:
        """A connection to a controller; it ends with the block."""
        talk = NodeConnection(self.controllers[node_id].port)
        self._talks.append(talk)
        return talk

    def made(self, node_id: int, name: str = "") -> Controller:
        """A controller in a directory of its own; not started."""
        place = self.directory / (name or f"controller-{node_id}")
        return self.plan.kind(node_id, place, self.membership, self.plan.settings)

    async def __aenter__(self) -> Self:
        if self.links:
            await self.links.__aenter__()
        try:
            await asyncio.gather(*(one.start() for one in self.controllers.values()))
            await self.leader()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for talk in self._talks:
            talk.close()
        for one in self.controllers.values():
            one.close()
        if self.links:
            await self.links.__aexit__()
        await asyncio.sleep(0)  # the loop takes note that connections are closed

    async def stop(self) -> None:
        """Stop all of them gracefully, at once."""
        running = [one for one in self.controllers.values() if one.is_running]
        await asyncio.gather(*(one.stop() for one in running))

    async def claims(self, *, without: Iterable[int] = ()) -> list[Leader]:
        """Each controller that says it leads, the highest epoch first."""
        asked = [
            one
            for one in self.controllers.values()
            if one.node_id not in set(without) and one.is_running and not one.is_paused
        ]
        found = await asyncio.gather(*(described(one.port) for one in asked))
        return sorted((one for one in found if one), key=lambda one: -one.epoch)

    async def leader(
        self, *, above: int = -1, without: Iterable[int] = (), deadline_s: float = LEADER_S
    ) -> Leader:
        """The leader of the highest epoch, once one of an epoch `above` has committed in it."""
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            claims = await self.claims(without=without)
            if claims and claims[0].epoch > above and claims[0].high_watermark >= 0:
                return claims[0]
            await asyncio.sleep(0.01)
        logs = "\n".join(one.log_tail(15) for one in self.controllers.values())
        raise AssertionError(f"no leader above epoch {above} within {deadline_s} s:\n{logs}")

    async def leaderless(self, *, without: Iterable[int] = ()) -> None:
        """Wait until no controller but those `without` says that it leads."""
        async with asyncio.timeout(LEADER_S):
            while await self.claims(without=without):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.05)

    async def settled(self, node_ids: Iterable[int] | None = None) -> Leader:
        """The leader, when all (or these) have what was committed at the time of the call."""
        wanted = set(self.controllers if node_ids is None else node_ids)
        end = (await self.leader()).high_watermark
        deadline = time.monotonic() + SETTLED_S
        while True:
            leader = await self.leader()
            # A voter whose disk was lost observes under another directory id.
            ends = (leader.observers, leader.ends)
            if all(max(of.get(one, -1) for of in ends) >= end for one in wanted):
                return leader
            assert time.monotonic() < deadline, f"{wanted} have not reached {end}: {leader}"
            await asyncio.sleep(0.05)


async def described(port: int) -> Leader | None:
    """What a controller says of the quorum; None where it does not lead, or does not answer."""
    talk = NodeConnection(port)
    try:
        answer = await talk.ask(ApiKey.DESCRIBE_QUORUM, DESCRIBED, timeout_s=ASKED_S)
    except NO_ANSWER:
        return None
    finally:
        talk.close()
    one: Any = answer.topics[0].partitions[0]
    if answer.error_code or one.error_code:
        return None
    return Leader(
        one.leader_id,
        one.leader_epoch,
        one.high_watermark,
        {voter.replica_id: voter.log_end_offset for voter in one.current_voters},
        {observer.replica_id: observer.log_end_offset for observer in one.observers},
    )
