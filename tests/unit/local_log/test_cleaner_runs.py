"""The cleaner of a broker, its process replaced by one that works here, dies, or hangs."""

import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from local_log.cleaner import cleaner as cleaner_module
from local_log.cleaner.cleaner import LogCleaner
from local_log.cleaner.log_facts import CleanerSettings, NotedLog
from local_log.cleaner.look import Look
from local_log.cleaner.process import do_job
from local_log.cleaner.worker import WorkerLostError
from local_log.config import LONG_MAX, LogConfig
from local_log.file_names import CLEANED, SWAP
from local_log.log.cleaning import PassSpoiltError
from local_log.log.cleaning_job import Answer, Group, Job
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import CLEANER_OFFSETS
from local_log.manager.log_dirs import LogManager
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import SimPorts, simulated
from tests.support.worlds.cleaned_logs import (
    COMPACTED,
    batches_of,
    commit,
    put,
    records_of,
    table_of,
)
from tests.support.worlds.local_log import NOW_MS, TOPIC_ID

TP = TopicPartition("orders", 0)
SETTINGS = CleanerSettings(backoff_ms=1000, buffer_bytes=1000, map_bytes=1 << 20)


class HereWorker:
    """Does a job as the process does; `before` is called with the job, and may raise."""

    def __init__(self, ports: SimPorts) -> None:
        self._ports = ports
        self._answers: deque[Answer] = deque()
        self.jobs: list[Job] = []
        self.kills = self.stops = 0
        self.before: Callable[[Job], None] = lambda _job: None
        self.each: Callable[[Answer], None] = lambda _answer: None

    def begin(self, job: Job) -> None:
        self.jobs.append(job)
        self._answers.clear()
        self.before(job)
        do_job(job, self._answers.append, lambda _: None, self._ports.disk)

    def next_answer(self) -> Answer:
        if not self._answers:
            raise WorkerLostError("it died")
        answer = self._answers.popleft()
        self.each(answer)
        return answer

    def kill(self) -> None:
        self.kills += 1

    def stop(self) -> None:
        self.stops += 1

    def collect(self) -> None:
        pass

    def close(self) -> None:
        pass


class World:
    def __init__(self, path: Path) -> None:
        self.disk = FaultyDisk()
        self.ports = simulated(disk=self.disk)
        self.configs: dict[str, LogConfig] = {}
        self.logs = LogManager([path], lambda topic: self.configs.get(topic, COMPACTED), self.ports)
        self.logs.lock()
        self.logs.load()
        self.directory = self.logs.dirs[0]
        self.worker = HereWorker(self.ports)
        self.settings = SETTINGS
        self.cleaner = LogCleaner(self.logs, lambda: self.settings, self.ports, self.worker)

    def log(self, topic: str = "orders", **config: object) -> PartitionLog:
        self.configs[topic] = replace(COMPACTED, **config)  # type: ignore[arg-type]
        return self.logs.create(topic, 0, TOPIC_ID)

    def checkpoint(self, tp: TopicPartition = TP) -> int | None:
        return self.logs.cleaned_to(tp)

    def leftovers(self, log: PartitionLog) -> list[str]:
        return [p.name for p in log.directory.iterdir() if p.name.endswith((CLEANED, SWAP))]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def fill(log: PartitionLog, batches: int = 30, *, keys: int = 3) -> None:
    for number in range(batches):
        put(log, (f"k{number % keys}", f"{number}" + "v" * 100))
    commit(log)


def test_a_dirty_log_is_cleaned_and_its_checkpoint_written(world: World) -> None:
    log = world.log()
    fill(log)
    before = table_of(log)
    world.cleaner.start()
    assert table_of(log) == before
    assert len(records_of(log)) < 20
    assert world.checkpoint() == log.segments.all[-1].base_offset
    text = (world.directory.path / CLEANER_OFFSETS).read_text()
    assert text == f"0\n1\norders 0 {world.checkpoint()}\n"
    assert world.leftovers(log) == []
    world.ports.scheduler.advance(5000)
    assert len(world.worker.jobs) == 1, "what is clean is left alone"
    facts = world.cleaner.facts
    assert (facts.passes, facts.failures, facts.dirty_ratio) == (1, 0, 0.0)
    assert 0 < facts.recopy_ratio < 1
    assert facts.map_use > 0


def test_what_is_not_compacted_tiered_or_not_dirty_enough_is_left_alone(world: World) -> None:
    plain = world.log("plain", cleanup_policy=frozenset({"delete"}))
    lazy = world.log("lazy", min_cleanable_dirty_ratio=1.0)
    young = world.log("young", min_compaction_lag_ms=10**15)
    tiered = world.log("tiered", remote_storage_enable=True)
    for log in (plain, lazy, young, tiered):
        fill(log)
    world.cleaner.start()
    assert world.worker.jobs == []
    world.settings = replace(SETTINGS, is_enabled=False)
    fill(world.log("off"))
    world.ports.scheduler.advance(5000)
    assert world.worker.jobs == []


def test_the_dirtiest_comes_first_and_all_that_are_due_have_their_turn(world: World) -> None:
    few, many = world.log("few"), world.log("many")
    fill(few, 50)
    world.cleaner.start()
    fill(few, 20)
    fill(many, 30)
    world.ports.scheduler.advance(2000)
    topics = [Path(job.directory).name for job in world.worker.jobs]
    assert topics == ["few-0", "many-0", "few-0"]


def test_keys_that_do_not_fit_take_further_passes(world: World) -> None:
    world.settings = replace(SETTINGS, map_bytes=4096)
    log = world.log()
    fill(log, 100, keys=70)
    before = table_of(log)
    world.cleaner.start()
    assert len(world.worker.jobs) > 2
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before
    end = log.segments.all[-1].base_offset
    keys = [record.key for record in records_of(log) if record.offset < end]
    assert len(keys) == len(set(keys)) > 50


def test_the_checkpoint_names_the_log_before_it_has_its_first_hole(world: World) -> None:
    log, seen = world.log(), []
    fill(log)
    world.worker.before = lambda job: seen.append(world.checkpoint())
    world.cleaner.start()
    assert seen == [0]


def test_a_process_that_dies_harms_nothing_and_is_tried_later_and_later(world: World) -> None:
    log = world.log()
    fill(log)
    before, segments = records_of(log), len(log.segments.all)

    def die(_: Job) -> None:
        raise WorkerLostError("killed")

    world.worker.before = die
    world.cleaner.start()
    assert (records_of(log), len(log.segments.all)) == (before, segments)
    assert world.cleaner.facts.failures == 1
    world.ports.scheduler.advance(60_000)
    assert 4 < len(world.worker.jobs) < 9
    world.worker.before = lambda _: None
    world.ports.scheduler.advance(120_000)
    assert world.cleaner.facts.failures == 0
    assert len(records_of(log)) < 20


def test_one_that_dies_in_the_middle_leaves_whole_groups(world: World) -> None:
    log = world.log(segment_bytes=500)
    fill(log)
    before = table_of(log)

    def die_after_one(answer: Answer) -> None:
        world.worker.each = lambda _: None
        world.worker._answers = deque([*world.worker._answers][:1])

    world.worker.each = die_after_one
    world.cleaner.start()
    assert world.cleaner.facts.failures == 1
    assert table_of(log) == before
    assert world.checkpoint() == 0
    assert world.leftovers(log) == []
    world.ports.scheduler.advance(10_000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before


def test_a_log_that_cannot_be_read_does_not_keep_the_others_waiting(world: World) -> None:
    log, other = world.log(), world.log("other")
    fill(log, 40)
    fill(other, 20)
    hidden = log.segments.all[1].path(".log")

    def hide(job: Job) -> None:
        if "orders" in job.directory and hidden.exists():
            hidden.rename(hidden.with_suffix(".hidden"))

    world.worker.before = hide
    world.cleaner.start()
    assert world.checkpoint(TopicPartition("other", 0)) == other.segments.all[-1].base_offset
    assert world.checkpoint() == 0
    hidden.with_suffix(".hidden").rename(hidden)
    world.worker.before = lambda _: None
    world.ports.scheduler.advance(10_000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert world.cleaner._retries == {}, "the next failure is the first one again"


def test_a_pass_whose_new_file_is_gone_is_spoilt(world: World) -> None:
    log = world.log()
    fill(log)
    with pytest.raises(PassSpoiltError, match="is gone"):
        log.cleaning.make_ready(0, "nobody")


def test_a_segment_that_was_taken_gets_its_name_when_there_are_descriptors_again(
    world: World,
) -> None:
    log = world.log()
    fill(log)
    before = table_of(log)
    world.disk.fail(["rename"], path_part=".log.deleted", error=errno.EMFILE)
    world.cleaner.start()
    assert not log.is_offline
    assert (log.directory / f"{0:020}.log.swap").exists()
    assert table_of(log) == before
    world.disk.heal()
    fill(log, 20)
    before = table_of(log)
    world.ports.scheduler.advance(10_000)
    assert world.leftovers(log) == []
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before


def test_damage_sets_the_log_aside_until_it_is_truncated(world: World) -> None:
    log = world.log()
    fill(log)
    path = log.segments.all[1].path(".log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert len(world.worker.jobs) == 1
    assert world.cleaner.left_out.uncleanable == [log]
    assert f"damaged batch at byte 0 of {path}" in log.cleaning.uncleanable
    assert not log.is_offline
    log.truncate_to(log.segments.all[1].base_offset)
    assert world.cleaner.left_out.uncleanable == []


@pytest.mark.parametrize("kind", ["truncated", "deleted", "begun anew"])
@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_pass_over_a_log_that_changed_meanwhile_is_thrown_away(
    world: World, kind: str, answers: int
) -> None:
    log = world.log(segment_bytes=500)
    fill(log)
    left = [answers]
    kept = table_of(log)

    def change(answer: Answer) -> None:
        left[0] -= 1
        if left[0] != -1:
            return
        if kind == "truncated":
            log.truncate_to(10)
            kept.clear()
            kept.update(table_of(log))
        elif kind == "deleted":
            world.logs.delete(TP)
        else:
            log.truncate_fully_and_start_at(100)

    world.worker.each = change
    world.cleaner.start()
    world.worker.each = lambda _: None
    if kind == "deleted":
        assert world.checkpoint() is None
        assert world.logs.get(TP) is None
        return
    assert world.leftovers(log) == []
    assert (world.checkpoint() or 0) <= log.log_end_offset
    if kind == "truncated":
        assert table_of(log) == kept
        fill(log)
        world.ports.scheduler.advance(5000)
        assert world.checkpoint() == log.segments.all[-1].base_offset
    else:
        assert records_of(log) == []


def test_retention_leaves_a_log_alone_while_it_is_cleaned(world: World) -> None:
    log = world.log(
        cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=1, segment_bytes=500
    )
    fill(log)
    seen: list[int] = []

    def retain(_: Answer) -> None:
        world.logs.run_retention(NOW_MS)
        seen.append(log.log_start_offset)

    world.worker.each = retain
    world.cleaner.start()
    assert set(seen) == {0}
    world.logs.run_retention(NOW_MS)
    assert log.log_start_offset > 0
    assert not log.is_offline


def test_truncation_cuts_the_checkpoint_back(world: World) -> None:
    log = world.log()
    fill(log)
    world.cleaner.start()
    assert (world.checkpoint() or 0) > 10
    log.truncate_to(10)
    assert world.checkpoint() == log.log_end_offset <= 10


def test_a_log_start_above_the_checkpoint_begins_the_dirty_part(world: World) -> None:
    log = world.log()
    fill(log)
    world.cleaner.start()
    at = log.log_end_offset - 1
    fill(log, 10)
    log.raise_log_start(at)
    world.ports.scheduler.advance(2000)
    assert world.worker.jobs[-1].first_dirty == at


async def test_stopping_ends_the_process_and_looks_no_more(world: World) -> None:
    fill(world.log())
    world.cleaner.start()
    await world.cleaner.stop()
    fill(world.logs.get(TP))  # type: ignore[arg-type]
    world.ports.scheduler.advance(60_000)
    assert world.worker.stops == 1
    assert len(world.worker.jobs) == 1


def test_one_pass_is_made_in_slices_of_logs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_module, "SLICE_LOGS", 2)
    logs = [world.log(f"t{number}") for number in range(5)]
    for log in logs:
        fill(log)
    world.cleaner.start()
    world.ports.scheduler.advance(10)
    assert all(
        world.checkpoint(log.topic_partition) == log.segments.all[-1].base_offset for log in logs
    )


@pytest.mark.parametrize("dirtier", ["sick", "sound"])
def test_a_log_over_which_the_process_ends_does_not_keep_the_others_waiting(
    world: World, dirtier: str
) -> None:
    sick, sound = world.log("sick"), world.log("sound")
    fill(sick, 60 if dirtier == "sick" else 20)
    fill(sound, 40)

    def die(answer: Answer) -> None:
        if "sick" in world.worker.jobs[-1].directory:
            raise WorkerLostError("killed", in_job=True)

    world.worker.each = die
    world.cleaner.start()
    world.ports.scheduler.advance(1500)
    assert world.checkpoint(sound.topic_partition) == sound.segments.all[-1].base_offset
    assert not sick.cleaning.uncleanable
    world.ports.scheduler.advance(600_000)
    assert [Path(job.directory).name for job in world.worker.jobs].count("sick-0") == 5
    assert world.cleaner.left_out.uncleanable == [sick]
    assert "5 processes in a row ended over it: killed" in sick.cleaning.uncleanable
    assert world.cleaner.facts.failures == 0


def test_a_process_that_never_begins_sets_no_log_aside(world: World) -> None:
    log = world.log()
    fill(log)

    def die(_: Job) -> None:
        raise WorkerLostError("it cannot be started")

    world.worker.before = die
    world.cleaner.start()
    world.ports.scheduler.advance(3_600_000)
    assert len(world.worker.jobs) > 8
    assert world.cleaner.left_out.uncleanable == []
    world.worker.before = lambda _: None
    world.ports.scheduler.advance(1_200_000)
    assert world.checkpoint() == log.segments.all[-1].base_offset


def test_tombstones_may_be_kept_for_as_long_as_can_be_said(world: World) -> None:
    log = world.log(delete_retention_ms=LONG_MAX)
    for number in range(20):
        put(log, (f"k{number % 3}", None), ("k0", "v" * 100))
    commit(log)
    before = records_of(log)
    world.cleaner.start()
    assert world.cleaner.left_out.uncleanable == []
    assert world.checkpoint() == log.segments.all[-1].base_offset
    times = {record.offset: record.timestamp for record in before}
    kept = records_of(log)
    assert len(kept) < len(before)
    assert all(record.timestamp == times[record.offset] for record in kept)
    horizons = [h.base_timestamp for h, _ in batches_of(log) if h.has_delete_horizon]
    assert set(horizons) == {LONG_MAX}


def test_a_truncation_between_the_look_and_the_pass_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last segment of the look is active again, and grows while the process works."""
    log = world.log(segment_bytes=700)
    fill(log, 6)
    add, seen = Look.add, list[int]()

    def cut_after(look: Look, some: Sequence[NotedLog]) -> None:
        add(look, some)
        if not seen:
            seen.append(log.segments.all[0].size_bytes)
            log.truncate_to(2)
            put(log, ("k0", "again" + "v" * 90))
            commit(log)

    monkeypatch.setattr(Look, "add", cut_after)
    world.cleaner.start()
    assert seen
    assert world.worker.jobs == [], "only the active segment is left"
    for number in range(10):
        put(log, (f"n{number}", "v" * 100))
    commit(log)
    before = table_of(log)
    world.ports.scheduler.advance(5000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before


def test_what_was_made_of_other_segments_is_not_taken(world: World) -> None:
    log = world.log(segment_bytes=700)
    fill(log, 20)
    before = table_of(log)

    def grow(answer: Answer) -> None:
        if isinstance(answer, Group):
            first.size_bytes += 1

    first = log.segments.all[0]
    world.worker.each = grow
    world.cleaner.start()
    assert len(world.worker.jobs) == 1
    first.size_bytes -= 1
    assert log.segments.all[0] is first
    assert world.leftovers(log) == []
    world.worker.each = lambda _: None
    world.ports.scheduler.advance(5000)
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before
