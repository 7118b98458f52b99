"""A leader with followers, whose controller is played by the test."""

import asyncio
from collections.abc import Mapping
from typing import Any

from broker.handlers.fetch import FetchHandler
from broker.replica.isr import InSyncReplicas
from broker.replica.partition import Partition
from metadata_topic.image.model import BrokerImage
from tests.support.worlds.data_plane import NODE, World, call, finish, start
from tests.support.worlds.fetch import ask, make, parts

FETCH = 15


def broker(broker_id: int, *, epoch: int = 10, **values: Any) -> BrokerImage:
    fields = {"incarnation_id": bytes(16), "endpoints": (), "fenced": False} | values
    return BrokerImage(id=broker_id, epoch=epoch, **fields)


class Cluster:
    """Leads `t` with the followers 2 and 3."""

    def __init__(self, world: World, *, isr: tuple[int, ...] = (1, 2, 3), **config: Any) -> None:
        self.world = world
        world.brokers = {one: broker(one) for one in (NODE, 2, 3)}
        world.add_topic("t", **config)
        world.change("t", replicas=(1, 2, 3), isr=isr, leader_epoch=4)
        self._begin(world)

    @classmethod
    def of(cls, world: World) -> "Cluster":
        """A partition that is led as it is."""
        cluster = cls.__new__(cls)
        cluster.world = world
        cluster._begin(world)
        return cluster

    def _begin(self, world: World) -> None:
        self.proposals: list[tuple[int, ...]] = []
        world.leading.propose = self._proposed
        self.fetcher: FetchHandler = make(world)

    @property
    def in_sync(self) -> InSyncReplicas:
        followers = self.partition.followers
        assert followers is not None
        return followers.in_sync

    @property
    def partition(self) -> Partition:
        return self.world.replicas.require("t", 0)

    def _proposed(self, partition: Partition) -> None:
        assert partition.followers is not None
        proposal = partition.followers.in_sync.proposal
        assert proposal is not None
        self.proposals.append(proposal.members)

    def question(self, replica: int, offset: int, **more: Any) -> dict[str, Any]:
        state = {"replica_id": replica, "replica_epoch": more.pop("broker_epoch", 10)}
        part = {"fetch_offset": offset, "current_leader_epoch": 4, "log_start_offset": 0} | more
        return ask(self.world, FETCH, ("t", [part]), replica_state=state)

    def fetch(self, replica: int, offset: int, **more: Any) -> Any:
        return parts(call(self.fetcher, FETCH, self.question(replica, offset, **more)))[0]

    def commit(self, *isr: int) -> None:
        """The controller carries the proposal out, and the image says so."""
        self.world.change("t", isr=isr)

    def after(self, milliseconds: int) -> None:
        self.world.clock.advance(milliseconds)
        self.partition.review(self.world.leading.now_ms())


async def asked(handler: Any, fields: Mapping[str, Any]) -> Any:
    answer = start(handler, FETCH, fields)
    if asyncio.isfuture(answer) or asyncio.iscoroutine(answer):
        answer = await answer
    return finish(handler, FETCH, answer)
