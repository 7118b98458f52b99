"""A follower of `__remote_log_metadata` has on its disk what it asks from: the leader counts it."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from local_log.segment.segment import LogSegment
from tests.support.worlds.followers import Pair, following

NAME = TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0)


def asked_from(pair: Pair) -> list[tuple[int, int]]:
    """Of each Fetch from here on: the offset it asks from, and up to where all is on the disk."""
    found: list[tuple[int, int]] = []
    serve = pair.side.serve

    def note(frame: bytes, answer: Callable[[bytes], None]) -> None:
        count = len(pair.side.fetches)
        serve(frame, answer)
        log = pair.follower.logs.get(NAME)
        for fetch in pair.side.fetches[count:]:
            named = [one.fetch_offset for topic in fetch.topics for one in topic.partitions]
            if log is not None:
                found.extend((offset, log.recovery_point) for offset in named)

    pair.side.serve = note  # type: ignore[method-assign]
    return found


async def test_what_it_got_is_on_the_disk_before_it_asks_again(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        asked = asked_from(pair)
        pair.add_topic(REMOTE_LOG_METADATA_TOPIC)
        for value in (b"a", b"b", b"c"):
            pair.leader.append(REMOTE_LOG_METADATA_TOPIC, value)
            await pair.run(200)
        assert [offset for offset, _ in asked if offset] == [1, 2, 3]
        assert all(flushed >= offset for offset, flushed in asked), asked
        assert pair.leader.log(REMOTE_LOG_METADATA_TOPIC).high_watermark == 3


async def test_of_another_topic_it_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        pair.add_topic("t")
        pair.leader.append("t", b"a")
        await pair.run(200)
        log = pair.follower.log("t")
        assert (log.log_end_offset, log.recovery_point) == (1, 0)


async def test_what_a_life_before_left_in_the_page_cache_is_flushed_first(tmp_path: Path) -> None:
    """Killed, or a leader until now: its first Fetch says that it has it."""
    async with following(tmp_path) as pair:
        pair.add_topic(REMOTE_LOG_METADATA_TOPIC)
        pair.leader.append(REMOTE_LOG_METADATA_TOPIC, b"a")
        await pair.run(200)
        pair.follower.log(REMOTE_LOG_METADATA_TOPIC).recovery_point = 0
        asked = asked_from(pair)
        pair.change(REMOTE_LOG_METADATA_TOPIC, leader_epoch=4)
        await pair.run(1_000)
        assert asked, "it follows the leadership"
        assert all(flushed >= offset == 1 for offset, flushed in asked), asked


async def test_a_disk_that_does_not_take_it_ends_the_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(tmp_path) as pair:
        pair.add_topic(REMOTE_LOG_METADATA_TOPIC)
        await pair.run(200)

        fsync = LogSegment.fsync

        def fails(segment: LogSegment) -> None:
            if tmp_path / "f" in segment.file.path.parents:
                raise OSError(errno.EIO, "disk")
            fsync(segment)

        monkeypatch.setattr(LogSegment, "fsync", fails)
        asked = asked_from(pair)
        pair.leader.append(REMOTE_LOG_METADATA_TOPIC, b"a")
        await pair.run(1_000)
        log = pair.follower.logs.get(NAME)
        assert log is not None
        assert log.is_offline
        assert all(offset == 0 for offset, _ in asked), "it said that it had it"
        assert pair.fetchers.problems()
