"""A change of many topics costs what it changes, not a write of the checkpoints for each."""

from pathlib import Path

from kafka_protocol.files.offset_checkpoint import RECOVERY_POINTS
from runtime.disk import Disk
from tests.support.worlds.data_plane import World


class CountingDisk(Disk):
    """Counts how often the recovery points are replaced."""

    written = 0

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        self.written += target.name == RECOVERY_POINTS
        super().rename(source, target, durable=durable)


def test_topics_deleted_together_write_the_checkpoints_once(tmp_path: Path) -> None:
    disk = CountingDisk()
    world = World(tmp_path, disk=disk)
    for number in range(5):
        world.add_topic(f"t{number}", 2)
    disk.written = 0
    world.topics = {"t0": world.topics["t0"]}
    world.apply()
    assert disk.written == 1
    assert {tp.topic for tp in world.replicas.partitions} == {"t0"}
    assert {log.topic_partition.topic for log in world.logs.all()} == {"t0"}
