"""Fetch of partitions whose records are only in the remote tier, played by the test."""

import asyncio
from typing import Any

import pytest

from broker.remote.reads import RemoteFetched, RemoteRead
from kafka_protocol.errors import ApiError, ErrorCode
from runtime.disk import Disk, FileRegion
from tests.support.worlds.data_plane import World, batch, call, finish, start, values_of
from tests.support.worlds.fetch import ask, make, parts
from tests.support.worlds.local_log import retain


class FakeTier:
    """Answers reads from prepared outcomes; what has none stays open."""

    def __init__(self, outcomes: dict[str, Any]) -> None:
        self.outcomes, self.asked = outcomes, list[RemoteRead]()
        self.open: list[asyncio.Future[RemoteFetched]] = []

    def read(self, read: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        self.asked.append(read)
        future: asyncio.Future[RemoteFetched] = asyncio.get_running_loop().create_future()
        outcome = self.outcomes.get(read.topic)
        if outcome is None:
            self.open.append(future)
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return future


class TestRemote:
    def _regions(self, *values: bytes) -> RemoteFetched:
        data = bytes(batch(*values))
        file = Disk().memfd("remote")
        Disk().write_at(file, 0, data)
        return RemoteFetched([FileRegion(file, 0, len(data))], len(data), [(5, 0)])

    def _world(self, world: World, *topics: str) -> None:
        """Topics whose records below 2 are only in the remote tier."""
        for topic in topics:
            world.add_topic(topic, remote_storage_enable=True, local_retention_ms=0)
            world.append(topic, b"0", b"1")
            log = world.log(topic)
            log.roll(world.clock.wall_ms())
            world.append(topic, b"2")
            assert log.set_copied_through(1, 3)
            world.clock.advance(1000)
            retain(log, world.clock.wall_ms())
            assert log.local_log_start_offset == 2

    def test_remote_and_local_partitions_come_in_one_answer(self, world: World) -> None:
        self._world(world, "far")
        world.add_topic("near")
        world.append("near", b"n")
        tier = FakeTier({"far": self._regions(b"0", b"1")})
        fields = ask(world, 12, ("far", [{}]), ("near", [{}]), isolation_level=1, max_wait_ms=50)
        far, near = parts(call(make(world, tier), 12, fields))
        assert values_of(far.records) == [b"0", b"1"]
        assert [(a.producer_id, a.first_offset) for a in far.aborted_transactions] == [(5, 0)]
        assert (far.error_code, far.high_watermark, far.log_start_offset) == (0, 3, 0)
        assert values_of(near.records) == [b"n"]
        assert tier.asked[0].offset == 0
        assert tier.asked[0].read_committed

    def test_several_remote_partitions_share_one_budget(self, world: World) -> None:
        self._world(world, "a", "b", "c")
        tier = FakeTier({t: RemoteFetched() for t in "abc"})
        each = {"partition_max_bytes": 600}
        fields = ask(world, 12, ("a", [each]), ("b", [each]), ("c", [each]), max_bytes=1000)
        call(make(world, tier), 12, fields)
        assert [(r.topic, r.max_bytes, r.min_one_batch) for r in tier.asked] == [
            ("a", 600, True),
            ("b", 400, False),
        ]

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ],
    )
    def test_an_error_of_the_tier_is_this_partitions_alone(
        self, world: World, code: ErrorCode
    ) -> None:
        self._world(world, "bad", "good")
        tier = FakeTier({"bad": ApiError(code, "why"), "good": self._regions(b"0", b"1")})
        fields = ask(world, 12, ("bad", [{}]), ("good", [{}]))
        bad, good = parts(call(make(world, tier), 12, fields))
        assert (bad.error_code, len(bad.records), bad.high_watermark) == (code, 0, -1)
        assert values_of(good.records) == [b"0", b"1"]

    async def test_local_data_do_not_wait_longer_than_the_client(self, world: World) -> None:
        self._world(world, "far")
        world.add_topic("near")
        world.append("near", b"n")

        tier = FakeTier({})
        handler = make(world, tier, remote_wait_ms=lambda: 60_000)
        fields = ask(world, 12, ("far", [{}]), ("near", [{}]), max_wait_ms=20)
        answer = finish(handler, 12, await start(handler, 12, fields))
        far, near = parts(answer)
        assert (far.error_code, len(far.records)) == (0, 0)
        assert values_of(near.records) == [b"n"]
        assert tier.open[0].cancelled()

    async def test_who_does_not_wait_gets_what_the_tier_has_at_hand(self, world: World) -> None:
        """Or an answer that always has something else in it would never bring remote records."""
        self._world(world, "far")
        world.add_topic("near")
        world.append("near", b"n")

        for beside in ("near", "missing"):
            tier = FakeTier({})
            handler = make(world, tier)
            fields = ask(world, 12, ("far", [{}]), (beside, [{}]), max_wait_ms=0)
            answering = asyncio.ensure_future(start(handler, 12, fields))
            for _ in range(5):  # the tier is another process: its answer takes some turns
                await asyncio.sleep(0)
            assert not answering.done(), beside
            tier.open[0].set_result(self._regions(b"0", b"1"))
            far, _ = parts(finish(handler, 12, await answering))
            assert values_of(far.records) == [b"0", b"1"]

    def test_without_a_tier_remote_offsets_are_a_storage_error(self, world: World) -> None:
        self._world(world, "far")
        answer = parts(call(make(world), 12, ask(world, 12, ("far", [{}]))))[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_replica_below_the_local_start_is_sent_to_the_tier(world: World) -> None:
    TestRemote()._world(world, "far")
    world.change("far", replicas=(1, 2))
    fields = ask(world, 12, ("far", [{}]), replica_id=2)
    answer = parts(call(make(world, FakeTier({})), 12, fields))[0]
    assert answer.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
