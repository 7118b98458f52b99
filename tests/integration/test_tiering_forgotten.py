"""A tiered partition that was begun again over its own remote segments, and its remedy."""

from pathlib import Path

import pytest

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.lost_disks import lose_second_disk, with_second_disk
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_files import adopt, objects
from tests.support.brokers.tiered_partition import TIERED, MakeBroker, reasons
from tests.support.brokers.tiered_topics import create

WITHOUT_METADATA = "rlmm.config.remote.log.metadata.common.client.security.protocol"


def records(name: str, count: int) -> list[tuple[bytes | None, bytes]]:
    return [(None, b"%s %d " % (name.encode(), n) + bytes(100_000)) for n in range(count)]


def lost_second_disk(broker: BrokerProcess) -> int:
    """A partition on a disk of its own is tiered, then that disk is lost and forgotten.

    Returns:
        First offset that is in no remote segment.
    """
    second = with_second_disk(broker)
    create(broker, "orders", **TIERED)
    produce(broker, "orders", records("before", 45))
    until(lambda: len(local_segments(second)) == 1, "all but the active segment are remote")
    remote_end = int(local_segments(second)[0].stem)
    assert remote_end > 0
    lose_second_disk(broker)
    return remote_end


def local_segments(directory: Path) -> list[Path]:
    return sorted((directory / "orders-0").glob("*.log"))


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(25, id="below the remote end", marks=pytest.mark.long),
        pytest.param(70, id="beyond the remote end"),
    ],
)
def test_a_log_begun_over_remote_segments_is_unhealthy_and_can_be_adopted(
    make_broker: MakeBroker, count: int
) -> None:
    broker = make_broker(tiered=True)
    remote_end = lost_second_disk(broker)
    before = objects(broker)
    # Records at offsets that were given, without a validation.
    broker.settings[WITHOUT_METADATA] = "SSL"
    broker.start()
    produce(broker, "orders", records("again", count))
    broker.kill()
    del broker.settings[WITHOUT_METADATA]
    broker.start()
    until(lambda: any("log end lost" in each for each in reasons(broker)), "health is `red`")
    (reason,) = reasons(broker)
    assert "remote adopt" in reason
    assert objects(broker) == before
    broker.kill()
    shown = adopt(broker, "--yes")
    assert f"the local records of offsets 0 to {count - 1}" in shown
    broker.start()
    until(lambda: reasons(broker) == [], "health is green")
    produce(broker, "orders", [(None, b"continues")])
    found = read_all(broker, "orders")
    assert [value[:7] for _, _, value in found[:remote_end]] == [b"before "] * remote_end
    assert [value for _, _, value in found[remote_end:]] == [b"continues"]
    assert found[-1][0] >= max(remote_end, count)
    assert before <= objects(broker)
    broker.kill()
    broker.start()
    until(lambda: reasons(broker) == [], "health is green")
    assert read_all(broker, "orders") == found
