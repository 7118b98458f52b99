"""A follower below its leader's local log begins at a remote segment's end, with its state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from broker.replica.hosting import ReplicaEvents
from broker.replica.partition import Partition
from broker.replication.following import LocalStart
from broker.replication.tier_bootstrap import State, why_unfit
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.file_names import PRODUCER_SNAPSHOT, path_of
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from local_log.manager.future_dirs import NewBeginning
from rlm.link.messages import AuxiliaryStateAnswer
from tests.support.worlds.data_plane import NODE, NOW_MS, batch
from tests.support.worlds.followers import Pair, following

TP = TopicPartition("t", 0)
SEGMENTS = 4
PER_SEGMENT = 10
PRODUCER = 77
LEADER = ("leader", 9000 + NODE)


@dataclass
class Tier:
    """What the follower's tier knows: the segments that the leader has rolled.

    Attributes:
        asked: (offset, epoch) of each question.
        above: the later epochs of the leader, of the last question.
        known: segments by their end (exclusive); those above are not FINISHED yet.
        change: what a test makes of an answer.
    """

    leader: PartitionLog
    known: int = 0
    asked: list[tuple[int, int]] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    change: Callable[[AuxiliaryStateAnswer], State] = lambda answer: answer
    held: list[Callable[[], None]] | None = None
    above: Sequence[EpochEntry] = ()

    def __call__(
        self,
        partition: Partition,
        offset: int,
        epoch: int,
        above: Sequence[EpochEntry],
        done: Callable[[State], None],
    ) -> None:
        self.asked.append((offset, epoch))
        self.above = above
        self.partitions.append(partition.partition)
        answer = self.answer(partition, offset, epoch)
        if self.held is None:
            done(answer)
        else:
            self.held.append(lambda: done(answer))

    def answer(self, partition: Partition, offset: int, epoch: int) -> State:
        end = (offset // PER_SEGMENT + 1) * PER_SEGMENT
        if end > self.known or self.leader.epochs.epoch_for(offset) != epoch:
            return ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, "no segment holds it")
        chain = [(one.epoch, one.start_offset) for one in self.leader.epochs.entries()]
        snapshot = (self.leader.directory.parent / "kept" / f"{end}.snapshot").read_bytes()
        return self.change(
            AuxiliaryStateAnswer(
                partition.topic_id,
                partition.partition,
                partition.leader_epoch,
                chain=[one for one in chain if one[1] < end],
                producer_snapshot=snapshot,
                end_offset=end,
            )
        )


def fill(pair: Pair, segments: int = SEGMENTS, *, epochs: tuple[int, ...] = (3,)) -> None:
    """Segments of an idempotent producer, the epochs one after the other among them."""
    partition = pair.leader.replicas.partitions[TP]
    kept = partition.log.directory.parent / "kept"
    kept.mkdir(exist_ok=True)
    for number in range(segments):
        epoch = epochs[min(number * len(epochs) // segments, len(epochs) - 1)]
        if epoch != partition.leader_epoch:
            pair.leader.change("t", leader_epoch=epoch)
        for _ in range(PER_SEGMENT):
            sequence = partition.log.log_end_offset
            made = batch(
                b"%d" % sequence, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
            )
            partition.append(made, now_ms=pair.leader.clock.wall_ms())
        partition.log.roll()
        end = partition.log.log_end_offset
        snapshot = path_of(partition.log.directory, end, PRODUCER_SNAPSHOT).read_bytes()
        (kept / f"{end}.snapshot").write_bytes(snapshot)


def expire(pair: Pair, end: int) -> None:
    """Everything below `end` is copied, and leaves the leader's disk."""
    log = pair.leader.log("t")
    assert log.set_copied_through(end - 1, log.epochs.epoch_for(end - 1))
    log.hold.end()
    pair.leader.logs.retention.run([log], pair.leader.clock.wall_ms(), release_copied=True)
    assert log.local_log_start_offset == end


def tiered(pair: Pair, *, known: int = SEGMENTS * PER_SEGMENT, **config: Any) -> Tier:
    """A tiered topic that is led, and not followed yet; and the follower's tier."""
    pair.leader.add_topic("t", remote_storage_enable=True, **config)
    pair.leader.change("t", replicas=(*pair.worlds, 2))
    tier = Tier(pair.leader.log("t"), known)
    pair.ask_tier = tier
    return tier


async def test_an_empty_follower_has_what_the_records_would_have_told(tmp_path: Path) -> None:
    """KIP-405, scenario 1: the chain below the leader's local start, and the producers."""
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        fill(pair, epochs=(3, 5))
        expire(pair, 30)
        pair.share("t")
        await pair.run(300)
        log, led = pair.follower.log("t"), pair.leader.log("t")
        assert tier.asked == [(29, 5)]
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 30)
        assert (log.log_end_offset, log.high_watermark) == (40, 40)
        assert log.epochs.entries() == led.epochs.entries() == [EpochEntry(3, 0), EpochEntry(5, 20)]
        assert pair.logs_are_equal("t")


async def test_the_tier_is_told_how_the_leaders_chain_continues(tmp_path: Path) -> None:
    """A segment whose end is of another lineage is none to begin behind."""
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        fill(pair, epochs=(3, 5, 6))
        expire(pair, 10)
        pair.share("t")
        await pair.run(300)
        assert tier.asked == [(9, 3)]
        assert [*tier.above] == pair.leader.log("t").epochs.entries()[1:]
        assert pair.logs_are_equal("t")


async def test_the_producers_continue_where_the_segment_left_them(tmp_path: Path) -> None:
    """No record came by the leader: what is known of them is in the snapshot alone."""
    async with following(tmp_path) as pair:
        tiered(pair)
        fill(pair)
        expire(pair, 40)
        pair.share("t")
        await pair.run(300)
        assert pair.follower.log("t").log_end_offset == 40
        pair.follower.change("t", leader=2, leader_epoch=6)
        partition = pair.follower.replicas.partitions[TP]
        infos = []
        for sequence in (39, 40):
            made = batch(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
            infos.append(partition.append(made, now_ms=NOW_MS))
        assert [(one.is_duplicate, one.first_offset) for one in infos] == [(True, 39), (False, 40)]


async def test_it_begins_at_the_segments_end_where_the_local_start_lies_within(
    tmp_path: Path,
) -> None:
    """A snapshot is of the segment's end: at the local start it would be ahead of the log."""
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        fill(pair)
        expire(pair, 20)
        # Another leader had other borders: its local log begins within a segment.
        pair.leader.log("t").segments.bases[0] = 15
        pair.share("t")
        await pair.run(300)
        log = pair.follower.log("t")
        assert tier.asked == [(14, 3)]
        assert (log.local_log_start_offset, log.log_end_offset) == (20, 40)


async def test_an_epoch_that_begins_at_the_local_start_asks_for_the_one_before(
    tmp_path: Path,
) -> None:
    """No segment holds the offset below under the epoch of the start (K405-66)."""
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        fill(pair, epochs=(3, 5))
        expire(pair, 20)
        pair.share("t")
        await pair.run(300)
        assert tier.asked == [(19, 3)]
        assert pair.follower.log("t").log_end_offset == 40


async def test_it_waits_for_a_segment_that_is_not_known_yet(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=20)
        fill(pair)
        expire(pair, 30)
        pair.share("t")
        await pair.run(1_000)
        log = pair.follower.log("t")
        assert len(tier.asked) > 1, "it asks again"
        assert (log.log_end_offset, log.directory.name) == (0, "t-0")
        tier.known = 40
        await pair.run(2_000)
        assert pair.follower.log("t").log_end_offset == 40


async def test_a_newer_local_start_is_taken_at_the_next_try(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=0)
        fill(pair)
        expire(pair, 20)
        pair.share("t")
        await pair.run(300)
        expire(pair, 30)
        tier.known = 40
        await pair.run(2_000)
        assert tier.asked[0] == (19, 3)
        assert tier.asked[-1] == (29, 3)
        assert pair.follower.log("t").local_log_start_offset == 30


async def test_a_log_that_is_behind_gives_way_as_a_whole(tmp_path: Path) -> None:
    """KIP-405, scenario 2.2: all that it has is below the leader's local log."""
    async with following(tmp_path) as pair:
        tiered(pair)
        fill(pair, 1)
        pair.share("t")
        await pair.run(300)
        before = pair.follower.log("t")
        assert before.log_end_offset == 10
        pair.network.cut.add(LEADER)
        fill(pair, 3)
        expire(pair, 30)
        pair.network.cut.clear()
        await pair.run(3_000)
        log = pair.follower.log("t")
        assert log is not before
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 30)
        assert pair.logs_are_equal("t")
        assert [each.name for each in log.directory.parent.glob("t-0*future")] == []


async def test_a_deleted_beginning_is_not_taken_over(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        tiered(pair)
        fill(pair, epochs=(3, 5))
        expire(pair, 30)
        pair.leader.log("t").raise_log_start(25)
        pair.share("t")
        await pair.run(1_000)
        log = pair.follower.log("t")
        assert (log.log_start_offset, log.local_log_start_offset) == (25, 30)
        assert log.epochs.entries() == [EpochEntry(5, 25)]
        directory = pair.follower.logs.directory_of(TP)
        assert directory is not None
        assert directory.entry("log-start-offset-checkpoint", TP) == 25


async def test_an_empty_log_leaves_out_what_is_copied_where_the_setting_says_so(
    tmp_path: Path,
) -> None:
    """`follower.fetch.last.tiered.offset.enable` (KIP-1023), set while it is followed."""
    async with following(tmp_path) as pair:
        await pair.add_followed("u", b"a")
        pair.config = replace(pair.config, follower_fetch_last_tiered_offset_enable=True)
        tier = tiered(pair)
        fill(pair)
        expire(pair, 10)
        led = pair.leader.log("t")
        assert led.set_copied_through(29, 3)
        pair.share("t")
        await pair.run(1_000)
        log = pair.follower.log("t")
        assert tier.asked == [(29, 3)]
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 30, 40)


async def test_many_that_wait_for_the_tier_are_named_in_one_line(tmp_path: Path) -> None:
    """The tier of a wiped broker reads its metadata first: nothing is wrong with a partition."""
    async with following(tmp_path) as pair:
        pair.leader.add_topic("t", 20, remote_storage_enable=True)
        for index in range(20):
            pair.leader.change("t", index, replicas=(*pair.worlds, 2))
            pair.leader.append("t", b"a", index=index)
            log = pair.leader.log("t", index)
            log.roll()
            assert log.set_copied_through(0, 3)
            pair.leader.logs.retention.run([log], pair.leader.clock.wall_ms(), release_copied=True)
        tier = Tier(pair.leader.log("t"))
        pair.ask_tier = tier
        pair.share("t")
        await pair.run(1_000)
        assert len({*tier.partitions}) == 20, "none waits for the others"
        assert pair.fetchers.problems() == []
        await pair.run(90_000)
        (line,) = pair.fetchers.problems()
        assert line.startswith("20 partition(s) cannot be followed before the remote tier has")
        assert not pair.fetchers.failed_count
        before = len(tier.asked)
        await pair.run(60_000)
        assert len(tier.asked) - before <= 3 * 20, "they ask ever more seldom"
        pair.delete("t")
        await pair.run(100)
        assert pair.fetchers.problems() == []


async def test_a_partition_that_needs_the_tier_no_more_is_named_no_more(tmp_path: Path) -> None:
    """All that it lacked was deleted meanwhile: it begins at the leader's log start."""
    async with following(tmp_path) as pair:
        tiered(pair, known=0)
        fill(pair)
        expire(pair, 30)
        pair.share("t")
        await pair.run(90_000)
        assert pair.fetchers.problems() != []
        pair.leader.log("t").raise_log_start(30)
        await pair.run(40_000)
        assert pair.follower.log("t").log_end_offset == 40
        assert pair.fetchers.problems() == []


async def test_other_partitions_of_the_leader_continue(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        tier.held = []
        fill(pair)
        expire(pair, 30)
        pair.share("t")
        await pair.add_followed("u", b"a")
        assert tier.asked == [(29, 3)]
        pair.leader.append("u", b"b")
        await pair.run(300)
        assert pair.follower.log("u").log_end_offset == 2
        assert pair.follower.log("t").log_end_offset == 0


async def test_a_new_leadership_meanwhile_keeps_the_old_log(tmp_path: Path) -> None:
    """Elected uncleanly it leads from what it has; nothing is left of what was built."""
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        tier.held = []
        fill(pair)
        expire(pair, 30)
        pair.share("t")
        await pair.run(300)
        before = pair.follower.log("t")
        pair.follower.change("t", leader=2, leader_epoch=6)
        for done in tier.held:
            done()
        await pair.run(300)
        assert pair.follower.log("t") is pair.follower.logs.get(TP) is before
        assert pair.follower.replicas.partitions[TP].is_leader
        assert [each.name for each in before.directory.parent.glob("t-0*future")] == []


async def test_a_failure_while_the_role_is_settled_does_not_end_the_attempts(
    tmp_path: Path,
) -> None:
    """The ISR has changed, not the leader epoch: nobody else would ask for the partition again."""
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=0)
        tier.held = []
        fill(pair)
        expire(pair, 30)
        pair.share("t")
        await pair.run(300)
        partition = pair.follower.replicas.partitions[TP]
        leader, epoch = partition.leader_id, partition.leader_epoch
        partition.pause()
        held, tier.held, tier.known = tier.held, None, 40
        for done in held:
            done()
        partition.become_follower(
            leader_id=leader,
            leader_epoch=epoch,
            partition_epoch=partition.partition_epoch + 1,
            replicas=partition.replicas,
            isr=partition.isr,
        )
        pair.fetchers.on_events(ReplicaEvents(followed=(partition,)))
        await pair.run(1_000)
        assert pair.follower.log("t").log_end_offset == 40


async def test_a_second_time_under_the_same_leadership(tmp_path: Path) -> None:
    """A 109 right after it has begun: it begins again, at the newest start."""
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        fill(pair)
        expire(pair, 20)
        tier.held = []
        pair.share("t")
        await pair.run(300)
        expire(pair, 30)
        held, tier.held = tier.held, None
        for done in held:
            done()
        await pair.run(2_000)
        assert tier.asked == [(19, 3), (29, 3)]
        log = pair.follower.log("t")
        assert (log.local_log_start_offset, log.log_end_offset) == (30, 40)


async def diverged(pair: Pair, end: int = 20) -> PartitionLog:
    """An unclean election: the leader ends there now; the follower has dropped that, and more.

    The network is cut.

    Returns:
        The log of the follower.
    """
    fill(pair, 3)
    pair.share("t")
    await pair.run(300)
    log = pair.follower.log("t")
    log.roll()
    fill(pair, 1)
    await pair.run(1_000)
    assert log.log_end_offset == 40
    assert log.set_copied_through(29, 3)
    pair.follower.logs.retention.run([log], pair.follower.clock.wall_ms(), release_copied=True)
    assert log.local_log_start_offset == 30
    pair.network.cut.add(LEADER)
    truncate_to(pair.leader.log("t"), end)
    pair.leader.log("t").roll()
    pair.change("t", leader_epoch=5, isr=(NODE,))
    fill(pair, (50 - end) // PER_SEGMENT, epochs=(5,))
    return log


async def test_a_log_that_would_be_cut_below_its_local_start_is_built_anew(
    tmp_path: Path,
) -> None:
    """Truncated it would continue without producers; until the swap it has what it had."""
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=50)
        tier.held = []
        before = await diverged(pair)
        expire(pair, 40)
        pair.network.cut.clear()
        await pair.run(3_000)
        assert tier.asked == [(39, 5)]
        assert pair.follower.log("t") is before
        assert (before.local_log_start_offset, before.log_end_offset) == (30, 40)
        held, tier.held = tier.held, None
        for done in held:
            done()
        await pair.run(1_000)
        log = pair.follower.log("t")
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 40)
        assert log.epochs.entries() == [EpochEntry(3, 0), EpochEntry(5, 20)]
        assert pair.logs_are_equal("t")
        pair.follower.change("t", leader=2, leader_epoch=6)
        made = batch(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=49)
        partition = pair.follower.replicas.partitions[TP]
        assert partition.append(made, now_ms=NOW_MS).is_duplicate


async def test_a_leader_that_is_wholly_local_sends_all_to_a_diverged_follower(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        await diverged(pair)
        pair.network.cut.clear()
        await pair.run(3_000)
        log = pair.follower.log("t")
        assert tier.asked == []
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 0, 50)
        assert pair.logs_are_equal("t")
        assert log.producers.states.producers.keys() == {PRODUCER}


async def test_a_cut_at_the_local_start_is_a_cut(tmp_path: Path) -> None:
    """The first segment has a snapshot of the producers."""
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        await diverged(pair, 30)
        expire(pair, 10)
        pair.network.cut.clear()
        await pair.run(3_000)
        log = pair.follower.log("t")
        assert tier.asked == []
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 30, 50)
        assert log.producers.states.producers.keys() == {PRODUCER}


async def test_a_diverged_log_that_waits_for_the_tier_is_named_and_kept(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=0)
        before = await diverged(pair)
        expire(pair, 40)
        pair.network.cut.clear()
        await pair.run(90_000)
        (line,) = pair.fetchers.problems()
        assert line.startswith("1 partition(s) cannot be followed before the remote tier has")
        assert (pair.follower.log("t"), before.log_end_offset) == (before, 40)
        tier.known = 50
        await pair.run(40_000)
        assert pair.logs_are_equal("t")
        assert pair.fetchers.problems() == []


async def test_a_diverged_log_that_is_elected_uncleanly_meanwhile_leads(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=50)
        tier.held = []
        before = await diverged(pair)
        expire(pair, 40)
        pair.network.cut.clear()
        await pair.run(1_000)
        assert tier.held
        pair.follower.change("t", leader=2, leader_epoch=6)
        for done in tier.held:
            done()
        await pair.run(300)
        assert pair.follower.log("t") is before
        assert (before.local_log_start_offset, before.log_end_offset) == (30, 40)
        assert [each.name for each in before.directory.parent.glob("t-0*future")] == []


async def test_a_diverged_log_is_built_for_the_next_leader_as_that_one_has_it(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=50)
        tier.held = []
        await diverged(pair)
        expire(pair, 40)
        pair.network.cut.clear()
        await pair.run(1_000)
        held, tier.held = tier.held, None
        expire(pair, 50)
        pair.change("t", leader_epoch=7, isr=(NODE,))
        for done in held:
            done()
        await pair.run(1_000)
        assert tier.asked == [(39, 5), (49, 5)]
        log = pair.follower.log("t")
        assert (log.local_log_start_offset, log.log_end_offset) == (50, 50)
        assert [each.name for each in log.directory.parent.glob("t-0*future")] == []


async def test_a_segment_that_ends_in_another_lineage_is_tried_after_pauses(
    tmp_path: Path,
) -> None:
    """Its end is not on the leader's chain: built by it, the log would be cut below its start."""
    async with following(tmp_path) as pair:
        tier = tiered(pair, known=50)
        await diverged(pair)
        expire(pair, 20)
        tier.change = lambda answer: structs.replace(answer, end_offset=30, chain=[(3, 0)])
        pair.network.cut.clear()
        await pair.run(60_000)
        assert len(tier.asked) in range(3, 8)
        assert pair.fetchers.failed_count == 1
        expire(pair, 40)
        tier.change = lambda answer: answer
        await pair.run(40_000)
        assert pair.logs_are_equal("t")
        assert not pair.fetchers.failed_count


@pytest.mark.parametrize(
    ("code", "is_named"),
    [(ErrorCode.CORRUPT_MESSAGE, True), (ErrorCode.KAFKA_STORAGE_ERROR, False)],
)
async def test_a_store_that_fails_is_asked_again(
    tmp_path: Path, code: ErrorCode, is_named: bool
) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        good, tier.change = tier.change, lambda _: ApiError(code, "the store")
        fill(pair)
        expire(pair, 30)
        pair.share("t")
        await pair.run(5_000)
        assert pair.follower.log("t").log_end_offset == 0
        assert bool(pair.fetchers.failed_count) is is_named
        if is_named:
            assert "offset 29 of epoch 3" in pair.fetchers.problems()[0]
        tier.change = good
        await pair.run(31_000)
        assert pair.follower.log("t").log_end_offset == 40
        assert not pair.fetchers.failed_count


async def test_damaged_state_of_the_tier_is_no_defect_of_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with following(tmp_path) as pair:
        tier = tiered(pair)
        tier.change = lambda answer: structs.replace(answer, producer_snapshot=b"damaged")
        fill(pair)
        expire(pair, 30)
        pair.share("t")
        await pair.run(5_000)
        assert pair.fetchers.failed_count == 1
    errors = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert errors[0].startswith("the remote state of a partition is damaged: partition=t-0 error=")
    assert not any("defect" in one for one in errors)


@pytest.mark.parametrize(
    ("end", "chain", "reason"),
    [
        (30, [(3, 0)], ""),
        (35, [(2, 0), (3, 20)], ""),
        (36, [(3, 0), (5, 35)], ""),
        (36, [(3, 0)], "has from that offset on epoch 3 from 29; the leader's log has epoch 3"),
        (35, [(3, 0), (4, 30)], "epoch 3 from 29, epoch 4 from 30; the leader's"),
        (36, [(3, 0), (5, 34)], "epoch 5 from 34; the leader's log has epoch 3 from 29, epoch 5 f"),
        (29, [(3, 0)], "ends at 29"),
        (30, [(4, 0)], "epoch 4 from 29"),
        (30, [(3, 0), (4, 20)], "epoch 4 from 29"),
        (30, [], "no epoch"),
        (30, [(3, 8)], "begin above the leader's log start 5"),
        (30, [(3, 5)], ""),
    ],
)
def test_state_of_another_lineage_is_refused(
    end: int, chain: list[tuple[int, int]], reason: str
) -> None:
    beginning = NewBeginning(end, 5, [EpochEntry(*one) for one in chain], b"")
    found = why_unfit(beginning, LocalStart(30, 3, 5, (EpochEntry(5, 35),)))
    assert reason in found
    assert bool(found) == bool(reason)
