"""Leaders that send what is wrong, or nothing: nothing of it is written, and it is named."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.replication.following import FAILED_WAIT_MS
from kafka_protocol.records.batch import patch_offset_and_epoch
from kafka_protocol.types import EpochEntry, TopicPartition
from tests.support.worlds.followers import Pair, batches_in, bytes_of, following

T0 = TopicPartition("t", 0)
Change = Callable[[bytearray], bytes | bytearray]


def of_first(change: Change, *, batches: int = 1) -> Callable[[Any], Any]:
    """Tampers with the records of partition 0; there are none before there are `batches`."""

    def tamper(body: Any) -> Any:
        for topic in body.responses:
            for one in topic.partitions:
                if one.partition_index == 0 and one.records:
                    are_enough = len(list(batches_in(one.records))) >= batches
                    one.records = bytes(change(bytearray(one.records))) if are_enough else b""
        return body

    return tamper


def flipped(records: bytearray) -> bytearray:
    records[-1] ^= 1
    return records


def second_first(records: bytearray) -> bytes:
    """Batches in another order."""
    return b"".join(
        bytes(records[position : position + size])
        for position, size in reversed(list(batches_in(records)))
    )


def foreign(records: bytearray) -> bytearray:
    """A batch of offsets that are here already."""
    patch_offset_and_epoch(records, 0, 0, 3)
    return records


def of_epoch(epoch: int) -> Change:
    def change(records: bytearray) -> bytearray:
        patch_offset_and_epoch(records, 0, int.from_bytes(records[:8], "big"), epoch)
        return records

    return change


def nonsense(records: bytearray) -> bytes:
    return b"\xff" * len(records)


def cut_short(records: bytearray) -> bytearray:
    return records[:-1]


async def followed(pair: Pair) -> bytes:
    """Two partitions with a record each, followed; returns what the first holds."""
    pair.add_topic("t", 2)
    pair.leader.append("t", b"0")
    pair.leader.append("t", b"0", index=1)
    await pair.run(300)
    return bytes_of(pair.follower.log("t"))


@pytest.mark.parametrize(
    ("change", "batches"),
    [
        (flipped, 1),
        (second_first, 2),
        (foreign, 1),
        (of_epoch(2), 2),
        (nonsense, 2),
        (cut_short, 1),
    ],
)
async def test_wrong_batches_are_not_written_and_named_while_others_continue(
    tmp_path: Path, change: Change, batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(tmp_path) as pair:
        before = await followed(pair)
        pair.side.tamper = of_first(change, batches=batches)
        for _ in range(batches):
            pair.leader.append("t", b"1", b"2")
        pair.leader.append("t", b"1", index=1)
        await pair.run(5_000, step_ms=10)
        assert bytes_of(pair.follower.log("t")) == before
        assert pair.logs_are_equal("t", 1)
        assert pair.fetchers.failed_count == 1
        assert str(T0) in pair.fetchers.problems()[0]
        said = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert [one.levelno for one in said] == [logging.WARNING, logging.ERROR]
        pair.side.tamper = lambda body: body
        await pair.run(FAILED_WAIT_MS + 1_000, step_ms=50)
        assert pair.logs_are_equal("t")
        assert (pair.fetchers.failed_count, pair.fetchers.problems()) == (0, [])


async def test_a_batch_of_a_later_epoch_than_the_leaders_is_not_written(tmp_path: Path) -> None:
    """The leader follows another one by now, and this broker does not know it yet."""
    async with following(tmp_path) as pair:
        before = await followed(pair)
        pair.side.tamper = of_first(of_epoch(9))
        pair.leader.append("t", b"1")
        await pair.run(3_000)
        log = pair.follower.log("t")
        assert bytes_of(log) == before
        assert log.epochs.entries() == [EpochEntry(3, 0)]
        assert log.high_watermark == 1
        pair.side.tamper = lambda body: body
        await pair.run(2_000)
        assert pair.logs_are_equal("t")


async def test_good_batches_before_a_damaged_one_are_kept(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await followed(pair)

        def last_flipped(records: bytearray) -> bytearray:
            return flipped(records) if len(list(batches_in(records))) > 1 else records

        pair.side.tamper = of_first(last_flipped)
        pair.leader.append("t", b"1")
        pair.leader.append("t", b"2")
        await pair.run(500)
        assert pair.follower.log("t").log_end_offset == 2
        pair.side.tamper = lambda body: body
        await pair.run(2_000)
        assert pair.logs_are_equal("t")


async def test_an_answer_that_is_cut_counts_for_nothing_and_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(tmp_path) as pair:
        before = await followed(pair)
        pair.side.cut = lambda data: data[:-20]
        pair.leader.append("t", b"1")
        await pair.run(5_000)
        assert bytes_of(pair.follower.log("t")) == before
        assert "no answer to a Fetch" in pair.fetchers.problems()[0]
        pair.side.cut = lambda data: data
        await pair.run(2_000)
        assert pair.logs_are_equal("t")
        assert pair.fetchers.problems() == []
        said = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(said) == 1


async def test_a_leader_that_is_silent_for_a_minute_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(tmp_path) as pair:
        await followed(pair)
        pair.side.tamper = lambda _: None
        pair.leader.append("t", b"1")
        await pair.run(65_000, step_ms=50)
        said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(said) == 1
        assert "no answer within 30000 ms" in said[0]
        assert pair.network.connections == 3, "each silence ends a connection"
        pair.side.tamper = lambda body: body
        await pair.run(35_000, step_ms=50)
        assert pair.logs_are_equal("t")
        assert pair.fetchers.problems() == []


async def test_a_leader_that_is_not_there_is_tried_with_growing_pauses(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        make = pair.network.nodes.pop(("leader", 9001))
        pair.add_topic("t")
        pair.leader.append("t", b"1")
        tries = 0
        connect = pair.network.connect

        def counted(*connecting: Any) -> Any:
            nonlocal tries
            tries += 1
            return connect(*connecting)

        pair.network.connect = counted  # type: ignore[method-assign]
        await pair.run(20_000, step_ms=20)
        assert 15 <= tries <= 30
        pair.network.nodes["leader", 9001] = make
        await pair.run(2_000)
        assert pair.logs_are_equal("t")


async def test_a_lost_session_is_begun_again(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await followed(pair)
        for session_id in list(pair.side.fetch.sessions._sessions):
            pair.side.fetch.sessions._drop(session_id)
        await pair.run(600)
        pair.leader.append("t", b"1")
        await pair.run(600)
        assert pair.logs_are_equal("t")
        assert len(pair.side.fetch.sessions) == 1


async def test_a_session_at_another_epoch_is_begun_again(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await followed(pair)
        for session in pair.side.fetch.sessions._sessions.values():
            session.epoch += 5
        await pair.run(600)
        pair.leader.append("t", b"1")
        await pair.run(600)
        assert pair.logs_are_equal("t")
        assert pair.fetchers.problems() == []


async def test_an_error_of_the_whole_answer_is_named_and_asked_rarely(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await followed(pair)

        def refused(body: Any) -> Any:
            body.error_code, body.responses, body.session_id = 31, [], 0
            return body

        pair.side.tamper = refused
        before = len(pair.side.fetches)
        await pair.run(20_000, step_ms=20)
        assert len(pair.side.fetches) - before <= 30
        assert "CLUSTER_AUTHORIZATION_FAILED" in pair.fetchers.problems()[0]


async def test_an_answer_of_other_partitions_counts_for_nothing(tmp_path: Path) -> None:
    """Two leaders' answers are crossed."""
    async with following(tmp_path) as pair:
        before = await followed(pair)

        def crossed(body: Any) -> Any:
            for topic in body.responses:
                topic.topic_id = b"o" * 16
            return body

        pair.side.tamper = crossed
        pair.leader.append("t", b"1")
        await pair.run(2_000)
        assert bytes_of(pair.follower.log("t")) == before
        assert "not asked for" in pair.fetchers.problems()[0]


async def test_a_full_answer_that_leaves_partitions_out_counts_for_nothing(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as pair:
        before = await followed(pair)

        def less(body: Any) -> Any:
            for topic in body.responses:
                topic.partitions = topic.partitions[:1]
            return body

        pair.side.tamper = less
        for session_id in list(pair.side.fetch.sessions._sessions):
            pair.side.fetch.sessions._drop(session_id)
        await pair.run(600)
        pair.leader.append("t", b"1")
        await pair.run(1_000)
        assert bytes_of(pair.follower.log("t")) == before
        assert "1 of 2 partitions" in pair.fetchers.problems()[0]


async def test_a_failed_disk_stops_its_partition_alone(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        await followed(pair)
        pair.follower.log("t").set_offline(OSError(5, "failed"))
        pair.leader.append("t", b"1")
        pair.leader.append("t", b"1", index=1)
        await pair.run(1_000)
        assert pair.logs_are_equal("t", 1)
        assert pair.fetchers.failed_count == 1
        fetches = len(pair.side.fetches)
        await pair.run(5_000)
        assert len(pair.side.fetches) - fetches <= 12


async def test_a_defect_in_an_append_stops_its_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(tmp_path) as pair:
        await followed(pair)
        log = pair.follower.log("t")
        monkeypatch.setattr(type(log), "roll", None)  # leaves no trace in others
        log.epochs.assign(3, 0)
        real = type(log).append_batches

        def broken(self: Any, *args: Any, **more: Any) -> Any:
            if self is log:
                raise AssertionError("planted")
            return real(self, *args, **more)

        monkeypatch.setattr(type(log), "append_batches", broken)
        pair.leader.append("t", b"1")
        pair.leader.append("t", b"1", index=1)
        await pair.run(1_000)
        assert pair.logs_are_equal("t", 1)
        assert "planted" in pair.fetchers.problems()[0]
        assert any(one.exc_info for one in caplog.records)
        assert not log.lease.is_leased


async def test_lag_is_counted_until_the_leader_is_reached(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        pair.fetchers.register(pair.follower.metrics)
        await followed(pair)

        def one_batch(records: bytearray) -> bytearray:
            [(_, size), *_] = batches_in(records)
            return records[:size]

        def lag() -> float:
            [[_, value]] = [one for one in pair.fetchers.lag_max() if one is not None]
            return value

        pair.side.tamper = of_first(one_batch)
        for _ in range(40):
            pair.leader.append("t", b"1")
        seen = set()
        for _ in range(200):
            await pair.run(20)
            seen.add(lag())
        assert max(seen) >= 30
        assert lag() == 0
        assert pair.logs_are_equal("t")
