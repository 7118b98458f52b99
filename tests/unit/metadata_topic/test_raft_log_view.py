"""What the core knows of its log: its epochs, its ends, and the snapshots that may be sent."""

from metadata_topic.raft.log_view import LogView, SnapshotFile
from metadata_topic.raft.messages import EpochEnd, SnapshotId


def test_a_snapshot_below_the_log_start_says_nothing_about_what_precedes_the_log() -> None:
    """It is there until a deletion comes to it; the log begins at the end of a later one."""
    old, new = SnapshotFile(SnapshotId(5, 1), 100), SnapshotFile(SnapshotId(10, 3), 100)
    log = LogView(10, 20, [(4, 12)], (old, new))
    assert log.oldest_snapshot == log.newest_snapshot == new
    assert log.end_of(3) == EpochEnd(3, 10)
    assert log.end_of(2) == EpochEnd(2, 10)
