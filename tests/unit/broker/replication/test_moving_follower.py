"""A follower's log moves to another log directory: it is followed on, and nothing is missing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.replica import directory_moves
from broker.replica.directory_moves import DirectoryMoves
from kafka_protocol.types import TopicPartition
from local_log.log.truncation import truncate_to
from local_log.manager import moving
from local_log.manager.log_dir import LogDir
from tests.support.worlds.followers import Pair, following
from tests.support.worlds.pools import HeldPool

TP = TopicPartition("t", 0)


class Moving:
    """A pair whose follower has two directories, its log in the first.

    Attributes:
        pool: of the moves.
    """

    def __init__(self, pair: Pair, second: Path) -> None:
        world = pair.follower
        second.mkdir()
        self.pair, self.world, self.second = pair, world, LogDir(second, world.disk)
        self.second.prepare()
        world.logs.dirs.append(self.second)
        self.moves = DirectoryMoves(world.logs, world.replicas, world.ports, lambda: 1 << 40)
        self.pool = HeldPool()
        self.moves._pool = self.pool  # type: ignore[assignment]

    async def check(self) -> None:
        """It has moved, and follows on."""
        self.pool.stop_holding()
        await self.pair.run(300)
        assert self.world.logs.directory_of(TP) is self.second
        self.pair.leader.append("t", b"last")
        await self.pair.run(300)
        assert self.pair.logs_are_equal("t")
        log = self.world.log("t")
        assert log.high_watermark == log.log_end_offset == self.pair.leader.log("t").log_end_offset
        assert log.directory.parent == self.second.path
        await self.moves.stop()


@asynccontextmanager
async def moving_follower(root: Path) -> AsyncIterator[Moving]:
    async with following(root) as pair:
        made = Moving(pair, root / "second")
        await pair.add_followed("t", *(b"%d" % n for n in range(20)))
        assert made.world.logs.directory_of(TP) is not made.second
        yield made


async def test_a_follower_moves_and_follows_on(tmp_path: Path) -> None:
    async with moving_follower(tmp_path) as world:
        world.pool.is_holding = False
        await world.moves.alter(TP, str(world.second.path))
        await world.check()


async def test_what_comes_during_the_swap_is_fetched_after_it(tmp_path: Path) -> None:
    async with moving_follower(tmp_path) as world:
        world.pool.is_holding = False
        finish = world.moves._moves.finish

        def finish_later(*args: object) -> object:
            world.pool.is_holding = True
            return finish(*args)  # type: ignore[arg-type]

        world.moves._moves.finish = finish_later  # type: ignore[method-assign, assignment]
        await world.moves.alter(TP, str(world.second.path))
        partition = world.world.replicas.partitions[TP]
        assert world.pool.held == 1, "the directories are about to change places"
        assert (partition.leader_id, partition.log.lease.is_leased) == (-1, True)
        for n in range(5):
            world.pair.leader.append("t", b"more %d" % n)
        await world.pair.run(300)
        assert partition.log.log_end_offset == 20
        await world.check()


async def test_a_follower_that_is_cut_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_moves, "SWAP_BYTES", 0)
    monkeypatch.setattr(moving, "STEP_BYTES", 400)
    async with moving_follower(tmp_path) as world:
        world.pool.is_holding = False
        copy, copied = world.moves._moves.copy, []

        def copy_and_hold(*args: object) -> object:
            copied.append(args)
            world.pool.is_holding = len(copied) == 2
            return copy(*args)  # type: ignore[arg-type]

        world.moves._moves.copy = copy_and_hold  # type: ignore[method-assign, assignment]
        await world.moves.alter(TP, str(world.second.path))
        assert world.pool.held == 1
        for log in (world.pair.leader.log("t"), world.world.log("t")):
            truncate_to(log, 5)
        world.pair.change("t", leader_epoch=4)
        for n in range(15):
            world.pair.leader.append("t", b"x %d" % n)
        await world.check()
