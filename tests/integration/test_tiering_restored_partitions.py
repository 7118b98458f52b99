"""A tiered partition begins again whose local copies are all lost; the store is whole.

Only real processes show that the order comes from the command through the leader's tier to files
that a start opens, and that the tier finds the restored log sound.
"""

from pathlib import Path

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.lost_disks import lose_second_disk, with_second_disk
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient
from tests.support.brokers.raw_client import produce as ask_produce
from tests.support.brokers.tiered_files import objects
from tests.support.brokers.tiered_partition import TIERED, MakeBroker, reasons
from tests.support.brokers.tiered_topics import create
from tests.support.worlds.data_plane import batch

PRODUCER = 4_000


def sent(broker: BrokerProcess, sequence: int) -> int:
    """One record of 100 kB by an idempotent producer; the offset that it is acknowledged at."""
    made = batch(
        b"%d " % sequence + bytes(100_000),
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )
    with RawClient(broker) as client:
        answer = ask_produce(client, "orders", bytes(made))
    assert answer.error_code == 0, answer
    return int(answer.base_offset)


def local_segments(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in (directory / "orders-0").glob("*.log"))


def restore(broker: BrokerProcess, *options: str) -> tuple[int, str]:
    arguments = ("orders", "0", "--bootstrap-server", broker.bootstrap, *options)
    done = broker.command("remote", "restore-partition", *arguments)
    return done.returncode, done.stdout + done.stderr


def test_a_lost_partition_continues_above_all_that_was_given(make_broker: MakeBroker) -> None:
    broker = make_broker(tiered=True)
    second = with_second_disk(broker)
    create(broker, "orders", **TIERED, retention_ms="-1")  # records are of a fixed time
    assert [sent(broker, sequence) for sequence in range(45)] == list(range(45))
    until(lambda: len(local_segments(second)) == 1, "all but the active segment are remote")
    (remote_end,) = local_segments(second)
    before = objects(broker)
    code, said = restore(broker)
    assert code == 1, said
    assert "has not found that all local copies are lost" in said
    lose_second_disk(broker)
    broker.start()
    until(lambda: any("log end lost" in each for each in reasons(broker)), "health is `red`")
    (reason,) = reasons(broker)
    assert "`tidemark remote restore-partition` to begin at" in reason
    end = 60
    code, said = restore(broker, "--yes", "--log-end", str(end))
    assert code == 0, said
    assert f"offsets {remote_end} to 59, a gap" in said
    until(lambda: reasons(broker) == [], "health is green")
    assert end_offsets(broker, "orders") == (0, end)
    assert sent(broker, remote_end - 1) == remote_end - 1, "a duplicate of the last copied batch"
    assert sent(broker, remote_end) == end
    found = read_all(broker, "orders")
    assert [offset for offset, _, _ in found] == [*range(remote_end), end]
    values = [int(value.split()[0]) for _, _, value in found if value]
    assert values == [*range(remote_end), remote_end], "each once"
    assert before <= objects(broker)
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
    copied = len(before)
    until(lambda: len(objects(broker)) > copied, "copying continues")
    for stop in (broker.terminate, broker.kill):
        stop()
        broker.start()
        until(lambda: reasons(broker) == [], "health is green")
        assert len(read_all(broker, "orders")) == len(found) + 25
