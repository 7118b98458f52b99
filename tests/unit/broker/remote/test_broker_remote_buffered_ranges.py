"""What the tier answered beyond a question serves the reader's next ones, checked as if fresh."""

import asyncio
from array import array
from typing import Any

from broker.remote.buffered_ranges import IDLE_MS, BufferedRange, Position
from broker.remote.reads import RemoteRead
from kafka_protocol.errors import ErrorCode
from rlm.link.messages import ReadAnswer, Region, Released
from runtime.disk import Disk
from tests.support.worlds.remote_reads import TOPIC_ID, Bench, code_of

DATA = bytes(range(100))  # ten batches of ten bytes and three offsets each, from offset 10 on


def table(count: int, first: int = 10) -> dict[str, bytes]:
    return {
        "batch_ends": array("q", range(10, 10 * count + 1, 10)).tobytes(),
        "last_offsets": array("q", (first + 3 * n + 2 for n in range(count))).tobytes(),
    }


def buffered(*regions: bytes) -> BufferedRange:
    answer = ReadAnswer(TOPIC_ID, 0, 4, **table(sum(map(len, regions)) // 10))
    position = Position(TOPIC_ID, 0, 4, 10, 1, False, "one")
    return BufferedRange(position, answer, [memoryview(each) for each in regions])


def joined(parts: list[Any]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def answer(bench: Bench, count: int = 10, first: int = 10, **changes: Any) -> None:
    """The tier answers its last question with batches from `first` on, in two regions."""
    files, regions = [], []
    for token, (start, end) in enumerate(((0, 40), (40, 10 * count)), 70):
        file = Disk().memfd("chunk")
        Disk().write_at(file, 0, b"##" + DATA[start:end])
        files.append(file)
        regions.append(Region(len(files) - 1, token, 2, end - start))
    bench.answer(
        files=tuple(files),
        regions=regions,
        next_offset=first + 3 * count,
        **{**table(count, first), **changes},
    )


def ask(
    bench: Bench,
    offset: int,
    max_bytes: int = 20,
    read_committed: bool = False,
    holder: str = "one",
) -> "asyncio.Future[Any]":
    return bench.reads.read(
        RemoteRead(
            TOPIC_ID,
            "orders",
            0,
            offset,
            max_bytes,
            True,
            read_committed,
            bench.clock.monotonic_ms() + 500,
            holder,
        )
    )


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_batches_are_taken_in_order_over_the_borders_of_regions() -> None:
    held = buffered(DATA[:40], DATA[40:])
    assert joined(held.take(35, min_one_batch=False)) == DATA[:30]
    assert held.position.offset == 19
    assert joined(held.take(40, min_one_batch=False)) == DATA[30:70]
    assert held.position.offset == 31
    assert (held.remaining_bytes, held.end_offset) == (30, 40)
    assert held.take(9, min_one_batch=False) == []
    assert joined(held.take(9, min_one_batch=True)) == DATA[70:80]
    assert joined(held.take(1_000, min_one_batch=False)) == DATA[80:]
    assert held.take(1_000, min_one_batch=True) == []
    assert held.remaining_bytes == 0


async def test_the_next_reads_are_served_at_once_and_without_a_question() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10)
    answer(bench)
    fetched = await future
    assert joined(fetched.regions) == DATA[:20]
    assert fetched.size_bytes == 20
    following = ask(bench, 16)
    assert following.done()
    assert joined(following.result().regions) == DATA[20:40]
    assert len(bench.tier.asked) == 1


async def test_a_window_is_for_the_connection_that_it_was_lent_to() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10)
    answer(bench)
    await future
    other = ask(bench, 16, holder="another")
    assert not other.done()
    assert [question.holder for question, _ in bench.tier.asked] == ["one", "another"]
    assert ask(bench, 16).done()


async def test_the_window_after_is_asked_for_before_its_reader_comes() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 60
    future = ask(bench, 10, max_bytes=70)
    answer(bench)
    await future
    assert [question.offset for question, _ in bench.tier.asked] == [10, 40]
    assert joined(ask(bench, 31, max_bytes=70).result().regions) == DATA[70:]
    waiting = ask(bench, 40)
    assert not waiting.done()
    assert len(bench.tier.asked) == 2, "its answer is on its way"
    answer(bench, 5, 40)
    assert joined((await waiting).regions) == DATA[:20]


async def test_a_reader_whose_answer_on_its_way_fails_asks_itself() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 60
    future = ask(bench, 10, max_bytes=100)
    answer(bench)
    await future
    waiting = ask(bench, 40)
    bench.answer(regions=[], error=int(ErrorCode.KAFKA_STORAGE_ERROR))
    assert [question.offset for question, _ in bench.tier.asked] == [10, 40, 40]
    bench.answer(regions=[], error=int(ErrorCode.KAFKA_STORAGE_ERROR))
    await asyncio.wait([waiting])
    assert code_of(waiting) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_what_is_local_is_not_asked_for_ahead() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10, max_bytes=100)
    answer(bench)
    await future
    assert len(bench.tier.asked) == 1


async def test_a_window_below_the_log_start_is_not_served() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10)
    answer(bench)
    await future
    bench.hosted.log.log_start_offset = 17
    assert code_of(ask(bench, 16)) == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_window_of_another_leader_epoch_topic_or_isolation_is_not_served() -> None:
    for change in ("epoch", "topic", "isolation"):
        bench = Bench()
        bench.hosted.log.local_log_start_offset = 40
        future = ask(bench, 10)
        answer(bench)
        await future
        if change == "epoch":
            bench.hosted.leader_epoch = 5
        if change == "topic":
            bench.hosted.topic_id = b"U" * 16
        again = ask(bench, 16, read_committed=change == "isolation")
        if change == "topic":
            assert code_of(again) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert not again.done()
            assert len(bench.tier.asked) == 2


async def test_read_committed_from_a_window_adds_what_the_local_log_knows() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10, read_committed=True)
    answer(bench)
    await future
    assert ask(bench, 16, read_committed=True).result().aborted_transactions == [(9, 16), (7, 3)]


async def test_a_window_without_aborted_transactions_asks_the_local_log_once() -> None:
    bench = Bench()
    log = bench.hosted.log
    log.local_log_start_offset = 40
    log.aborted = []
    future = ask(bench, 10, read_committed=True)
    answer(bench)
    assert (await future).aborted_transactions == []
    assert ask(bench, 16, read_committed=True).result().aborted_transactions == []
    assert log.aborted_asked == [(10, 40)]


async def test_a_window_that_nobody_asks_for_is_given_back() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10)
    answer(bench)
    await future
    del future
    bench.tier.asked.clear()
    bench.scheduler.advance(IDLE_MS * 2)
    await settle()
    released = [token for told in bench.tier.told for token in told.tokens]
    assert sorted(released) == [70, 71]


async def test_windows_go_with_their_tier() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10)
    answer(bench)
    await future
    bench.reads.on_tier_down()
    bench.tier.up = False
    again = ask(bench, 16)
    assert not again.done()
    bench.scheduler.advance(600)
    assert code_of(again) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_chunks_left_behind_are_released_while_the_window_continues() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 40
    future = ask(bench, 10, max_bytes=40)
    answer(bench)
    await future
    ask(bench, 22)
    del future
    bench.tier.asked.clear()
    bench.scheduler.advance(600)
    await settle()
    assert bench.tier.told == [Released([70])]


async def test_an_answer_ahead_that_cannot_be_taken_does_not_hold_up_its_reader() -> None:
    bench = Bench()
    bench.hosted.log.local_log_start_offset = 60
    future = ask(bench, 10, max_bytes=70)
    answer(bench)
    await future
    waiting = ask(bench, 31, max_bytes=70)
    assert waiting.done()
    waiting = ask(bench, 40)
    bench.answer(regions=[Region(0, 80, 0, 1 << 20)])  # longer than the file behind it
    assert [question.offset for question, _ in bench.tier.asked] == [10, 40, 40]
    await settle()
    assert Released([80]) in bench.tier.told
    answer(bench, 5, 40)
    assert joined((await waiting).regions) == DATA[:20]
