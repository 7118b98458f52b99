"""A leader that lost all it had here begins again by the remote tier, above what was given."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.replica.errors import NotValidated
from broker.replica.partition import Partition
from broker.replica.validation import Validation
from broker.replication.restoring import PartitionRestoring
from broker.replication.tier_bootstrap import State, TierBootstraps
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.file_names import LOG, path_of
from local_log.recovery.acceptance import read_accepted
from rlm.link.messages import (
    AuxiliaryStateAnswer,
    CopiedThrough,
    Loss,
    LossFound,
    Restoration,
    ValidationWithdrawn,
)
from tests.support.worlds.data_plane import NOW_MS, World, batch
from tests.support.worlds.pools import turns
from tests.support.worlds.replacement import PRODUCER, SNAPSHOT

TP = TopicPartition("t", 0)
FOUND = Restoration(begin=5_000, epoch_below=4, end=5_010, given_epoch=6)
CHAIN = [(2, 3_000), (4, 4_000)]


@dataclass
class Lost:
    """A partition led under epoch 7 whose log is empty, and what its tier answers.

    Attributes:
        held: answers that do not come yet.
    """

    world: World
    asked: list[tuple[int, int]] = field(default_factory=list)
    end_offset: int = FOUND.begin
    held: list[Callable[[], None]] | None = None

    def __post_init__(self) -> None:
        self.world.add_topic("t", leader_epoch=7, remote_storage_enable=True)
        self.bootstraps = TierBootstraps(self._answer, self.world.logs, self.world.ports)
        self.restoring = PartitionRestoring(self.world.replicas, self.bootstraps)
        self.report()

    @property
    def partition(self) -> Partition:
        return self.world.replicas.partitions[TP]

    def report(self) -> None:
        partition = self.partition
        names = (partition.topic_id, 0, partition.leader_epoch)
        partition.take_report(LossFound(*names, Loss.LOG_END, FOUND))

    def _answer(
        self,
        partition: Partition,
        offset: int,
        epoch: int,
        _above: Sequence[EpochEntry],
        done: Callable[[State], None],
    ) -> None:
        self.asked.append((offset, epoch))
        answer = AuxiliaryStateAnswer(
            partition.topic_id,
            0,
            partition.leader_epoch,
            chain=CHAIN,
            producer_snapshot=SNAPSHOT,
            end_offset=self.end_offset,
        )
        if self.held is None:
            done(answer)
        else:
            self.held.append(lambda: done(answer))

    async def restored(self, end: int = FOUND.end) -> None:
        partition, found = self.restoring.found("t", 0)
        await self.restoring.restore(partition, found, end)
        await turns(5)


def named(directory: Path, suffix: str) -> list[Path]:
    return [*directory.glob(f"t-0.*-{suffix}")]


@asynccontextmanager
async def lost(directory: Path) -> AsyncIterator[Lost]:
    world = World(directory, has_tier=True)
    made = Lost(world)
    try:
        yield made
    finally:
        await made.bootstraps.stop()
        await world.replicas.stop()
        world.logs.close()


def sent(partition: Partition, sequence: int, count: int = 5) -> tuple[bool, int]:
    made = batch(*[b"x"] * count, base_sequence=sequence, **PRODUCER)
    info = partition.append(made, now_ms=NOW_MS)
    return info.is_duplicate, info.first_offset


async def test_a_restored_log_begins_at_the_segments_end_above_all_given_offsets(
    tmp_path: Path,
) -> None:
    async with lost(tmp_path) as one:
        await one.restored()
        partition = one.partition
        log = partition.log
        assert one.asked == [(4_999, 4)]
        assert (log.log_start_offset, log.local_log_start_offset) == (3_000, 5_000)
        assert (log.log_end_offset, partition.high_watermark) == (5_010, 5_010)
        entries = [EpochEntry(*entry) for entry in CHAIN]
        assert log.epochs.entries() == [*entries, EpochEntry(7, 5_010)]
        assert read_accepted(one.world.disk, log.directory).adopted_epoch == 6
        assert log.adopted_epoch == 6
        assert partition.log.unvalidated_end == 5_010, "not 0: it would be lost for ever"


async def test_a_restored_log_takes_batches_of_producers_only_once_validated(
    tmp_path: Path,
) -> None:
    async with lost(tmp_path) as one:
        await one.restored()
        partition = one.partition
        with pytest.raises(NotValidated):
            sent(partition, 15)
        names = (partition.topic_id, 0, partition.leader_epoch)
        partition.take_report(CopiedThrough(*names, 4_999, 4, 3_000, 1))
        assert partition.verdict is Validation.SOUND
        assert sent(partition, 10) == (True, 4_995), "the last batch that was copied"
        assert sent(partition, 15) == (False, 5_010)


async def test_a_higher_end_that_a_person_names_is_taken(tmp_path: Path) -> None:
    async with lost(tmp_path) as one:
        await one.restored(6_000)
        assert one.partition.log.log_end_offset == 6_000


async def test_records_taken_meanwhile_are_kept_for_a_person(tmp_path: Path) -> None:
    async with lost(tmp_path) as one:
        one.partition.verdict = Validation.OPEN
        one.world.append("t", b"meanwhile")
        one.report()
        await one.restored()
        (kept,) = named(tmp_path, "stray")
        disk = one.world.disk
        assert b"meanwhile" in disk.read_file(path_of(kept, 0, LOG))


async def test_an_empty_log_is_not_kept(tmp_path: Path) -> None:
    async with lost(tmp_path) as one:
        await one.restored()
        assert not named(tmp_path, "stray")


async def test_what_is_not_found_lost_or_not_led_is_not_restored(tmp_path: Path) -> None:
    async with lost(tmp_path) as one:
        names = (one.partition.topic_id, 0, 7)
        one.partition.take_report(ValidationWithdrawn(*names))
        with pytest.raises(ApiError) as refused:
            one.restoring.found("t", 0)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        one.report()
        one.world.change("t", leader_epoch=8)
        await turns(3)
        with pytest.raises(ApiError):
            one.restoring.found("t", 0)


async def test_a_state_that_is_of_no_use_leaves_the_log_and_its_leader(tmp_path: Path) -> None:
    async with lost(tmp_path) as one:
        one.end_offset, old = 4_000, one.partition.log
        with pytest.raises(ApiError, match="ends at 4000") as failed:
            await one.restored()
        assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        await turns(5)
        assert one.partition.log is old
        assert one.partition.is_leader


async def test_another_role_meanwhile_leaves_the_log(tmp_path: Path) -> None:
    async with lost(tmp_path) as one:
        one.held, old = [], one.partition.log
        partition, found = one.restoring.found("t", 0)
        restoring = asyncio.ensure_future(one.restoring.restore(partition, found, found.end))
        await turns(3)
        one.world.change("t", leader_epoch=8)
        await turns(3)
        (answer,) = one.held
        answer()
        with pytest.raises(ApiError) as refused:
            await restoring
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert one.partition.log is old
        assert not named(tmp_path, "future")
