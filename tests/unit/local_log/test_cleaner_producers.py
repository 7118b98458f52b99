"""What a pass is told of the producers of its log, and in which portions."""

import random
import socket
from pathlib import Path

import pytest
from msgspec import structs

from kafka_protocol.records.batch import read_header
from kafka_protocol.records.records import build_batch
from local_log.cleaner import cleaner as cleaner_module
from local_log.cleaner.process import Link, send_job
from local_log.log.truncation import truncate_to
from local_log.producers.last_batches import LastBatch, LastBatches, unpacked
from local_log.producers.state import ProducerStates
from runtime.executors import ThreadPool
from tests.support.worlds.cleaned_logs import end_transaction, put
from tests.support.worlds.cleaner import World, fill
from tests.unit.local_log.test_cleaner_process import job_for


def append(states: ProducerStates, producer_id: int, offset: int) -> None:
    batch = build_batch([(0, b"k", b"v", [])], producer_id=producer_id, producer_epoch=1)
    states.append_data(read_header(batch), offset)


def gathered(states: ProducerStates, first: int, end: int) -> dict[int, LastBatch]:
    last = LastBatches(states, first, end)
    while last.take(3):
        pass
    return unpacked(bytes(last.packed))


def test_only_those_whose_newest_batch_is_in_the_range() -> None:
    states = ProducerStates()
    for producer_id in range(10):
        append(states, producer_id, 100 + producer_id)
    append(states, 4, 500)
    assert gathered(states, 102, 106) == {2: (102, 1), 3: (103, 1), 5: (105, 1)}
    assert gathered(states, 0, 100) == {}


@pytest.mark.parametrize("seed", range(20))
def test_producers_that_come_and_go_between_two_turns_hide_no_others(seed: int) -> None:
    rng, states = random.Random(seed), ProducerStates()
    for number in range(60):
        append(states, number, number)
    states.expire(1_000, 100)
    last, staying = LastBatches(states, 0, 60), set(range(60))
    new = 1000
    while last.take(rng.randrange(1, 9)):
        gone = [one for one in rng.sample(range(60), 4) if rng.random() < 0.5]
        for _ in range(rng.randrange(3) * rng.randrange(40)):  # the table is made again, too
            append(states, new, new)
            new += 1
        states.expire(2_000, 100, gone)
        staying.difference_update(gone)
    found = unpacked(bytes(last.packed))
    assert staying <= set(found)
    assert all(found[one] == LastBatch(one, 1) for one in staying)
    assert set(found) <= set(range(60))


def test_a_pass_knows_all_producers_of_its_log_gathered_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner_module, "SLICE_PRODUCERS", 2)
    world, sizes = World(tmp_path), list[int]()
    take = LastBatches.take

    def count(last: LastBatches, some: int) -> bool:
        before = len(last.packed)
        continues = take(last, some)
        sizes.append(len(last.packed) - before)
        return continues

    monkeypatch.setattr(LastBatches, "take", count)
    log = world.log()
    for producer_id in range(5):
        put(log, ("k", "v"), producer_id=producer_id, producer_epoch=3, base_sequence=0)
    end_transaction(log, 9, commits=True)
    fill(log, 30)
    world.cleaner.start()
    world.ports.scheduler.advance(10)
    assert sizes == [48, 48, 48]
    wanted = {number: (number, 3) for number in range(5)} | {9: (-1, 0)}
    assert unpacked(world.worker.jobs[0].producers) == wanted
    assert world.checkpoint() == log.segments.all[-1].base_offset


def test_a_truncation_between_two_turns_ends_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner_module, "SLICE_PRODUCERS", 1)
    world, take = World(tmp_path), LastBatches.take
    log = world.log()
    put(log, ("k", "v"), producer_id=1, producer_epoch=3, base_sequence=0)
    put(log, ("k", "v"), producer_id=2, producer_epoch=3, base_sequence=0)
    fill(log, 30)

    def cut(last: LastBatches, some: int) -> bool:
        continues = take(last, some)
        if not cuts:
            cuts.append(truncate_to(log, 10))
        return continues

    cuts, segments = list[object](), list[int]()
    monkeypatch.setattr(LastBatches, "take", cut)
    world.worker.before = lambda job: segments.append(job.segments[-1].end_offset)
    world.cleaner.start()
    world.ports.scheduler.advance(10)
    assert cuts
    assert max(segments, default=0) <= 10, "no job speaks of what was cut"
    assert not log.cleaning.is_running


def test_a_job_of_very_many_producers_comes_as_it_was_sent(tmp_path: Path) -> None:
    states = ProducerStates()
    for number in range(40_000):
        append(states, number, number)
    last = LastBatches(states, 0, 40_000)
    last.take(40_000)
    jobs = [
        structs.replace(job_for(tmp_path / "a"), producers=bytes(last.packed)),
        job_for(tmp_path / "b", 2),
    ]
    ours, its = socket.socketpair()
    pool, link = ThreadPool("sending", 1), Link(its)
    sent = [pool.submit(send_job, ours, job) for job in jobs]
    assert [link.next_job(10_000), link.next_job(10_000)] == jobs
    assert link.next_job(0) is None
    for each in sent:
        each.result(10)
    pool.shutdown()
    ours.close()
    its.close()
