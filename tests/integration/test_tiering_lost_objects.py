"""Objects that vanish or rot in the store, and a disk that takes the tier's caches."""

import shutil
from pathlib import Path

import pytest

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import until
from tests.support.brokers.tiered_partition import TIERED, MakeBroker, fill, first_value, reasons
from tests.support.brokers.tiered_topics import create


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_object_turns_health_unhealthy_by_its_name_until_it_is_back(
    make_broker: MakeBroker, damage: str
) -> None:
    broker = make_broker(tiered=True).start()
    count = fill(broker)
    path = min(broker.remote_directory.rglob("*.log"))
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:1_000] + bytes((data[1_000] ^ 1,)) + data[1_001:])
    assert not isinstance(first_value(broker), bytes)
    named = f"log is {damage} in the store"
    (reason,) = until(
        lambda: [each for each in reasons(broker) if named in each], "health names the object"
    )
    assert reason.startswith("tier: orders-0: remote segment ")
    assert " from offset 0: " in reason
    path.write_bytes(data)
    until(lambda: isinstance(first_value(broker), bytes), "the object is served again")
    until(lambda: reasons(broker) == [], "health is green")
    assert len(read_all(broker, "orders")) == count


def unmounted(path: Path) -> None:
    """The disk is gone: its files are, and nothing can be made there."""
    shutil.rmtree(path)
    path.write_text("no directory any more")


def test_a_lost_first_log_directory_does_not_end_tiering_of_the_others(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    broker = make_broker(tiered=True)
    broker.settings = {
        "log.dirs": f"{one},{other}",
        "metadata.log.dir": str(broker.log_directory),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    }
    broker.start()
    held = "__remote_log_metadata-0"
    until(lambda: any((each / held).exists() for each in (one, other)), "its topic is there")
    kept = one if (one / held).exists() else other
    lost = other if kept is one else one
    broker.terminate()
    broker.settings["log.dirs"] = f"{lost},{kept}"
    broker.start()
    for number in range(4):
        topic = f"topic{number}"
        create(broker, topic, **TIERED)
        if (kept / f"{topic}-0").exists():
            break
    produce(broker, topic, [(None, b"%d" % n + bytes(100_000)) for n in range(45)])
    until(lambda: len(broker.remote_segments(topic)) >= 4, "all closed segments are copied")
    until(lambda: len(list((kept / f"{topic}-0").glob("*.log"))) == 1, "expired here")
    for name in ("tier.lock", "tier-incarnation", "remote-log-metadata"):
        assert (broker.log_directory / name).exists()
        assert not (lost / name).exists()
    unmounted(lost)
    broker.kill_tier()
    assert len(read_all(broker, topic)) == 45
    assert not (kept / "remote-log-index-cache").exists()
    produce(broker, topic, [(None, bytes(100_000)) for _ in range(30)])
    until(lambda: len(broker.remote_segments(topic)) >= 6, "copying continues")
    off = "the index cache on disk is off"
    until(lambda: any(off in each for each in reasons(broker)), "health says what is off")
