"""AlterReplicaLogDirs: what may move where; and what the replica says while it does."""

import asyncio
import errno
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from broker.replica import directory_moves
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.errors import NotLeaderOrFollower
from broker.replica.hosting import ReplicaEvents
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError
from local_log.manager import moving
from local_log.manager.loading import Refused
from local_log.manager.log_dir import LogDir
from metadata_topic.image.model import DIRECTORY_UNASSIGNED
from metadata_topic.image.records import make
from runtime.executors import InlinePool
from tests.support.worlds.data_plane import NODE, call, finish, start
from tests.support.worlds.one_broker import DIRECTORIES, OneBroker
from tests.support.worlds.pools import HeldPool

TP = TopicPartition("t", 0)
UNLIMITED = 1 << 62


class World(OneBroker):
    """A broker whose replicas may move.

    Attributes:
        rate: bytes a second.
    """

    rate = UNLIMITED

    def start(self, **kwargs: Any) -> None:
        super().start(**kwargs)
        self.moves = DirectoryMoves(self.logs, self.replicas, self.ports, lambda: self.rate)
        self.events: list[ReplicaEvents] = []
        self.replicas.listeners.append(self.events.append)

    def alter(self, path: Path | str, *partitions: TopicPartition) -> list[int]:
        """Codes of the partitions, in their order."""
        handler = AlterReplicaLogDirsHandler(self.moves)
        answer = call(handler, 2, asked(path, *partitions))
        found = {
            TopicPartition(topic.topic_name, one.partition_index): one.error_code
            for topic in answer.results
            for one in topic.partitions
        }
        return [found[tp] for tp in partitions]

    def other(self, tp: TopicPartition = TP) -> int:
        return 1 - self.where(*tp)

    def described(self) -> list[dict[tuple[str, int], tuple[int, int, bool]]]:
        """Size, lag and whether it is a future one, by directory and partition."""
        handler = DescribeLogDirsHandler(self.logs, self.replicas, InlinePool())
        return [
            {
                (topic.name, one.partition_index): (
                    one.partition_size,
                    one.offset_lag,
                    one.is_future_key,
                )
                for topic in result.topics
                for one in topic.partitions
            }
            for result in call(handler, 5, {"topics": None}).results
        ]


def asked(path: Path | str, *partitions: TopicPartition) -> dict[str, Any]:
    topics = [{"name": tp.topic, "partitions": [tp.partition]} for tp in partitions]
    return {"dirs": [{"path": str(path), "topics": topics}]}


@pytest.fixture
def broker(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.served("t", 2)
    return made


@pytest.fixture
def held(broker: World) -> HeldPool:
    """The pool of moves does nothing before it is released."""
    return hold(broker)


def hold(broker: World) -> HeldPool:
    """Let the pool of moves do nothing before it is released."""
    pool = HeldPool()
    broker.moves = DirectoryMoves(broker.logs, broker.replicas, broker.ports, lambda: broker.rate)
    broker.moves._pool = pool  # type: ignore[assignment]
    return pool


def test_a_replica_moves_and_its_leader_continues(broker: World) -> None:
    target = broker.other()
    partition = broker.replicas.partitions[TP]
    epoch, said = partition.leader_epoch, len(broker.events)
    assert broker.alter(broker.paths[target], TP) == [ErrorCode.NONE]
    assert broker.where("t") == target
    assert broker.replicas.get(TP) is partition
    assert (partition.is_leader, partition.leader_epoch) == (True, epoch)
    broker.append("t")
    assert broker.ends("t", 1) == [4]
    assert partition.high_watermark == 4
    assert not any(one.followed or one.gone for one in broker.events[said:])
    assert list(broker.asked.values()) == [DIRECTORIES[target]], "the metadata are told"
    broker.commit_assignments()
    assert partition.is_leader
    assert not broker.replicas.hosting.pending
    broker.logs.close()
    broker.start()
    assert broker.ends("t", 1) == [4]


def test_where_it_moved_on_before_the_metadata_knew_they_are_told_the_last(
    broker: World, tmp_path: Path
) -> None:
    third = LogDir(tmp_path / "c", broker.disk)
    third.path.mkdir()
    third.prepare()
    third.directory_id = b"c" * 16
    broker.logs.dirs.append(third)
    for path in (broker.paths[broker.other()], third.path):
        assert broker.alter(path, TP) == [ErrorCode.NONE]
        broker.ports.scheduler.advance(1_000)
    assert broker.logs.directory_of(TP) is third
    assert list(broker.asked.values()) == [third.directory_id]
    broker.commit_assignments()
    assert not broker.replicas.hosting.pending
    assert not broker.asked


@pytest.mark.parametrize("version", [1, 2])
def test_each_partition_has_its_own_answer(broker: World, version: int) -> None:
    handler, path = AlterReplicaLogDirsHandler(broker.moves), broker.paths[broker.other()]
    question = asked(path, TP, TopicPartition("unknown", 0), TopicPartition("t", 9))
    answer = call(handler, version, question)
    assert {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in answer.results
        for one in topic.partitions
    } == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_directory_that_is_not_in_log_dirs_is_not_found(broker: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in (elsewhere, "", f"{broker.paths[0]}/", broker.paths[0] / "t-0"):
        assert broker.alter(path, TP) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert not list(elsewhere.iterdir())


def test_a_directory_that_is_offline_takes_nothing(broker: World) -> None:
    target = broker.other()
    broker.logs.fail(broker.logs.dirs[target], OSError(errno.EIO, "away"))
    assert broker.alter(broker.paths[target], TP) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert broker.alter(broker.paths[1 - target], TP) == [ErrorCode.NONE], "where it is"


def test_a_replica_that_is_offline_does_not_move(broker: World) -> None:
    source = broker.where("t")
    broker.logs.fail(broker.logs.dirs[source], OSError(errno.EIO, "away"))
    assert broker.alter(broker.paths[1 - source], TP) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_replica_that_comes_later_is_made_where_it_was_said(broker: World) -> None:
    elsewhere = NODE + 1
    broker.create("u", 0)
    topic_id = broker.image.topics_by_name["u"].id
    directories = {"directories": [b"x" * 16]}
    broker.commit(
        make(
            "PartitionRecord",
            2,
            partition_id=0,
            topic_id=topic_id,
            replicas=[elsewhere],
            isr=[elsewhere],
            leader=elsewhere,
            leader_epoch=0,
            partition_epoch=0,
            **directories,
        )
    )
    tp = TopicPartition("u", 0)
    for target in (0, 1):  # the last one counts
        assert broker.alter(broker.paths[target], tp) == [ErrorCode.REPLICA_NOT_AVAILABLE]
    broker.served("filler", 2)
    assert broker.logs.preferred == {tp: broker.logs.dirs[1]}


def test_where_it_is_already_nothing_happens(broker: World) -> None:
    assert broker.alter(broker.paths[broker.where("t")], TP) == [ErrorCode.NONE]
    assert not broker.logs.moves.under_way
    assert not broker.asked


# -- while it moves


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def ask(broker: World, held: HeldPool, target: int) -> None:
    """Begin a move, and copy nothing."""
    handler = AlterReplicaLogDirsHandler(broker.moves)
    answer = asyncio.ensure_future(start(handler, 2, asked(broker.paths[target], TP)))
    await held.until_held()
    held.release(1)
    found = finish(handler, 2, await answer)
    assert found.results[0].partitions[0].error_code == ErrorCode.NONE


def test_the_future_replica_is_described_until_it_has_taken_over(
    broker: World, held: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_moves, "SWAP_BYTES", 0)
    target = broker.other()
    size = broker.replicas.partitions[TP].log.size_bytes

    async def work() -> None:
        await ask(broker, held, target)
        assert held.held == 1
        held.release(1)  # what is there by now

    run(work())
    seen = broker.described()
    assert seen[1 - target]["t", 0] == (size, 0, False)
    assert seen[target]["t", 0] == (size, 0, True)
    broker.append("t")
    assert broker.described()[target]["t", 0] == (size, 1, True)
    held.stop_holding()
    assert ("t", 0) not in broker.described()[1 - target]
    assert broker.described()[target]["t", 0][1:] == (0, False)


def test_while_the_rest_is_copied_clients_are_sent_away_and_come_back(
    broker: World, held: HeldPool
) -> None:
    run(ask(broker, held, broker.other()))
    partition = broker.replicas.partitions[TP]
    broker.append("t")
    held.release(1)  # all that was there is durable
    with pytest.raises(NotLeaderOrFollower):
        broker.append("t")
    with pytest.raises(NotLeaderOrFollower):
        partition.check_leader(-1)
    held.stop_holding()
    broker.append("t")
    assert broker.ends("t", 1) == [5]


def test_a_role_that_was_said_during_the_swap_counts(broker: World, held: HeldPool) -> None:
    run(ask(broker, held, broker.other()))
    held.release(1)
    topic_id = broker.image.topics_by_name["t"].id
    broker.commit(make("PartitionChangeRecord", 0, partition_id=0, topic_id=topic_id, leader=-1))
    partition, led = broker.replicas.partitions[TP], list[bool]()
    partition.log.lease.when_here(lambda: led.append(partition.is_leader))
    held.stop_holding()
    assert (led, partition.is_leader) == ([False], False), "not for a moment"
    assert broker.where("t") == broker.logs.dirs.index(broker.logs.directory_of(TP))  # type: ignore[arg-type]


def test_a_role_that_hosting_has_in_hand_comes_before_the_swap(tmp_path: Path) -> None:
    """Else it leads with a log that is about to go, and what it acknowledges is lost."""
    changes = HeldPool(is_holding=False)
    broker = World(tmp_path, changes=changes)
    broker.served("t", 2)
    held, target = hold(broker), broker.other()
    changes.is_holding = True
    topic_id = broker.image.topics_by_name["t"].id
    broker.commit(
        make("PartitionChangeRecord", 0, partition_id=0, topic_id=topic_id, isr=[NODE]),
        make("TopicRecord", name="u", topic_id=b"u" * 16),
        make(
            "PartitionRecord",
            2,
            partition_id=0,
            topic_id=b"u" * 16,
            replicas=[NODE],
            isr=[NODE],
            leader=NODE,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY_UNASSIGNED],
        ),
    )
    assert changes.held == 1, "another partition of the same batch is made"
    run(ask(broker, held, target))
    held.release(1)
    changes.stop_holding()
    broker.append("t")
    held.stop_holding()
    broker.ports.scheduler.advance(1_000)
    assert broker.where("t") == target
    assert broker.ends("t", 1) == [4]
    broker.append("t")


def test_a_later_target_takes_the_place_of_the_one_before(broker: World, held: HeldPool) -> None:
    """And the directory where it is ends the move."""
    source, target = broker.where("t"), broker.other()
    run(ask(broker, held, target))
    assert len(list(broker.paths[target].glob("t-0.*-future"))) == 1
    held.stop_holding()
    broker.moves._queues.clear()
    assert broker.alter(broker.paths[source], TP) == [ErrorCode.NONE]
    assert not broker.logs.moves.under_way


def test_asked_again_for_the_same_target_it_continues(broker: World, held: HeldPool) -> None:
    target = broker.other()
    run(ask(broker, held, target))
    (move,) = broker.logs.moves.under_way.values()
    assert broker.alter(broker.paths[target], TP) == [ErrorCode.NONE]
    assert list(broker.logs.moves.under_way.values()) == [move]
    held.stop_holding()
    assert broker.where("t") == target


def test_a_topic_that_is_deleted_ends_its_move(broker: World, held: HeldPool) -> None:
    target = broker.other()
    run(ask(broker, held, target))
    topic_id = broker.image.topics_by_name["t"].id
    broker.commit(make("RemoveTopicRecord", topic_id=topic_id))
    held.stop_holding()
    assert not broker.logs.moves.under_way
    assert not list(broker.paths[target].glob("t-0*-future"))


def test_a_target_that_fails_ends_the_move_and_the_replica_serves_on(
    broker: World, held: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_moves, "SWAP_BYTES", 0)
    target = broker.other()
    run(ask(broker, held, target))
    broker.disk.fail(["append"], path_part="-future", error=errno.EIO)
    held.stop_holding()
    assert not broker.logs.moves.under_way
    assert [one.works for one in broker.logs.dirs] == [index != target for index in (0, 1)]
    broker.disk.heal()
    broker.append("t")
    assert broker.ends("t", 1) == [4]


def test_a_move_copies_no_more_than_its_share(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(50):
        broker.append("t")
    monkeypatch.setattr(directory_moves, "SWAP_BYTES", 0)
    monkeypatch.setattr(moving, "STEP_BYTES", 500)
    size, target = broker.replicas.partitions[TP].log.size_bytes, broker.other()
    broker.rate = size // 10
    assert broker.alter(broker.paths[target], TP) == [ErrorCode.NONE]
    (move,) = broker.logs.moves.under_way.values()
    for second in range(1, 9):
        broker.ports.scheduler.advance(1_000)
        assert move.copied_bytes <= second * broker.rate + 1_000
    assert move.copied_bytes > 6 * broker.rate
    broker.ports.scheduler.advance(5_000)
    assert broker.where("t") == target


def test_nothing_is_copied_at_a_rate_of_zero_until_it_is_raised(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_moves, "SWAP_BYTES", 0)
    monkeypatch.setattr(moving, "STEP_BYTES", 50)
    broker.rate, target = 0, broker.other()
    broker.alter(broker.paths[target], TP)
    (move,) = broker.logs.moves.under_way.values()
    copied = move.copied_bytes
    broker.ports.scheduler.advance(60_000)
    assert move.copied_bytes == copied
    broker.rate = UNLIMITED
    broker.ports.scheduler.advance(1_000)
    assert broker.where("t") == target


async def stop_while_a_thread_works(broker: World, held: HeldPool, target: int) -> None:
    await ask(broker, held, target)
    stopping = asyncio.ensure_future(broker.moves.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    held.stop_holding()
    await stopping


def test_a_stopped_broker_continues_with_its_moves(broker: World, held: HeldPool) -> None:
    target = broker.other()
    run(stop_while_a_thread_works(broker, held, target))
    assert broker.where("t") == 1 - target
    broker.logs.close()
    broker.start()
    asyncio.run(broker.moves.resume(broker.logs.interrupted))
    assert broker.where("t") == target
    assert not list(broker.paths[target].glob("*-future"))


def test_a_move_that_cannot_continue_after_a_start_is_forgotten(
    broker: World, held: HeldPool
) -> None:
    target = broker.other()
    run(ask(broker, held, target))
    broker.logs.close()
    broker.start()
    topic_id = broker.image.topics_by_name["t"].id
    broker.commit(make("RemoveTopicRecord", topic_id=topic_id))
    asyncio.run(broker.moves.resume(broker.logs.interrupted))
    assert not list(broker.paths[target].glob("*-future"))
    assert not broker.logs.moves.under_way


def test_a_log_whose_start_is_not_known_yet_waits(broker: World) -> None:
    log = broker.logs.get(TP)
    assert log is not None
    log.log_start_known = False
    target = broker.other()
    broker.alter(broker.paths[target], TP)
    broker.ports.scheduler.advance(1_000)
    assert broker.where("t") == 1 - target
    log.raise_log_start(0)
    broker.ports.scheduler.advance(1_000)
    assert broker.where("t") == target


def test_while_a_cleaner_renames_files_no_step_is_planned(broker: World) -> None:
    """A step that is planned counts as copied: one that is not made would be missing."""
    log, target = broker.replicas.partitions[TP].log, broker.other()
    log.roll()
    broker.append("t")
    log.roll()
    moving_segment = log.segments.all[1]
    moving_segment.is_moving = True
    broker.alter(broker.paths[target], TP)
    broker.ports.scheduler.advance(1_000)
    assert broker.where("t") == 1 - target
    (move,) = broker.logs.moves.under_way.values()
    assert move.copied_bytes == 0
    moving_segment.is_moving = False
    broker.ports.scheduler.advance(1_000)
    assert broker.where("t") == target
    log = broker.replicas.partitions[TP].log
    assert [one.base_offset for one in log.segments.all if one.size_bytes] == [0, 3]


def test_nothing_is_copied_while_the_log_is_cut(
    broker: World, held: HeldPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes would be copied as what comes in its place."""
    monkeypatch.setattr(directory_moves, "SWAP_BYTES", 0)
    log, target = broker.replicas.partitions[TP].log, broker.other()
    log.lease.grant(truncates=True)
    run(ask(broker, held, target))
    assert held.held == 0
    log.lease.take_back()
    held.stop_holding()
    broker.ports.scheduler.advance(1_000)
    assert broker.where("t") == target


def test_several_replicas_move_side_by_side_to_their_directories(broker: World) -> None:
    broker.served("u", 6)
    names = [TopicPartition("u", index) for index in range(6)]
    assert broker.alter(broker.paths[0], *names) == [ErrorCode.NONE] * 6
    assert [broker.where(*tp) for tp in names] == [0] * 6


def test_what_is_not_a_kafka_error_is_told_as_one(broker: World) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    broker.moves.alter = broken  # type: ignore[method-assign, assignment]
    assert broker.alter(broker.paths[0], TP) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_swap_that_fails_at_the_source_is_no_success(broker: World, held: HeldPool) -> None:
    target = broker.other()
    run(ask(broker, held, target))
    held.release(2)  # it is whole there
    broker.disk.fail(["rename"], path_part=f"{broker.paths[1 - target]}/", error=errno.EIO)
    held.stop_holding()
    assert [one.works for one in broker.logs.dirs] == [index == target for index in (0, 1)]
    with pytest.raises(KafkaStorageError):
        broker.append("t")
    assert list(broker.paths[target].glob("t-0.*-future/*.log")), "it may be the last"
    broker.disk.heal()
    broker.logs.close()
    broker.start()
    asyncio.run(broker.moves.resume(broker.logs.interrupted))
    assert (broker.where("t"), broker.ends("t", 1)) == (target, [3])
    assert not list(broker.paths[target].glob("t-0.*-future"))


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_copy_stays_after_a_start_that_cannot_open_the_log(
    broker: World, held: HeldPool, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    monkeypatch.setattr(directory_moves, "SWAP_BYTES", 0)
    target = broker.other()
    run(ask(broker, held, target))
    held.release(1)
    broker.logs.close()
    if is_refused:
        broker.start()
        source = broker.logs.dirs[1 - target]
        broker.logs._hosted.refuse({TP: Refused((source,), "damaged")})
        broker.replicas.partitions.pop(TP)
        broker.replicas.offline[TP] = "damaged"
    else:
        broker.start(failing=[1 - target])
    asyncio.run(broker.moves.resume(broker.logs.interrupted))
    assert not broker.logs.moves.under_way
    assert list(broker.paths[target].glob("t-0.*-future/*.log"))
