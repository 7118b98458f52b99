"""Torn tail or damage: what each sign of the rule says where no other sign is there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.records.batch import iter_batches
from metadata_topic.quorum.errors import (
    DamagedMetadataError,
    ForeignSnapshotError,
    MissingMetadataError,
)
from metadata_topic.quorum.log import survey as log_survey
from metadata_topic.quorum.log.batches import note_flushed_end, value_batch
from metadata_topic.quorum.log.flushed_end_file import NO_EPOCH, FlushedEnd
from metadata_topic.quorum.log.survey import LaterBatch, SegmentSurvey, survey_log
from metadata_topic.quorum.log.verdict import DirectoryFacts, Verdict, validate
from metadata_topic.quorum.snapshot.snapshots import SnapshotId
from runtime.disk import Disk

BROKEN = SegmentSurvey("0.log", 0, 900, 500, 50, 1, "no whole batch")
TORN = DirectoryFacts("here", [BROKEN])


def test_without_a_sign_it_is_a_torn_tail() -> None:
    assert validate(TORN).torn_bytes == 400


def test_a_snapshot_does_not_hide_that_a_flushed_batch_is_damaged() -> None:
    """An old note says that less was flushed; the batch behind says that the place was."""
    snapshot = SnapshotId(80, 1)
    noted = FlushedEnd(10, led_epoch=1)
    facts = replace(TORN, newest_snapshot=snapshot, usable_snapshot=snapshot, noted=noted)
    with pytest.raises(ForeignSnapshotError):
        validate(facts)
    later = (LaterBatch(700, 90, 1, 85),)
    with pytest.raises(DamagedMetadataError):
        validate(replace(facts, segments=[replace(BROKEN, later=later)]))


@pytest.mark.parametrize("led_epoch", [NO_EPOCH, 2])
def test_a_fetched_batch_says_nothing_about_this_disk(led_epoch: int) -> None:
    """A follower writes several at once; a power cut may tear the first and keep the others."""
    noted = FlushedEnd(10, led_epoch=led_epoch)
    later = (LaterBatch(700, 90, 1, 85), LaterBatch(800, 95, 1, None))
    facts = replace(TORN, noted=noted, segments=[replace(BROKEN, later=later)])
    assert validate(facts).torn_bytes == 400
    for said in (replace(noted, led_epoch=1), None):
        with pytest.raises(DamagedMetadataError, match="flushed to 85"):
            validate(replace(facts, noted=said))


def test_a_damaged_snapshot_proves_what_was_flushed_as_well() -> None:
    facts = replace(TORN, newest_snapshot=SnapshotId(60, 1), usable_snapshot=SnapshotId(20, 1))
    with pytest.raises(DamagedMetadataError, match="newest snapshot's end"):
        validate(facts)


def test_the_last_epoch_is_also_that_of_batches_behind_the_place() -> None:
    later = (LaterBatch(700, 60, 7, None),)
    assert validate(replace(TORN, segments=[replace(BROKEN, later=later)])).last_epoch == 7


def test_whole_batches_are_found_wherever_the_buffer_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray()
    for offset in range(12):
        batch = value_batch([b"v" * (offset * 7)], base_offset=offset, epoch=1, timestamp_ms=5)
        note_flushed_end(batch, offset)
        data += batch
    positions = [position for position, _ in iter_batches(bytes(data))]
    data[positions[1] + 70] ^= 1
    (tmp_path / f"{0:020}.log").write_bytes(data)
    for size in range(61, 400):
        monkeypatch.setattr(log_survey, "_WINDOW_BYTES", size)
        (found,) = survey_log(tmp_path, Disk())
        assert found.whole_bytes == positions[1], size
        assert [later.position for later in found.later] == positions[2:], size


def segment(base_offset: int, end_offset: int, last_epoch: int = 1, **more: Any) -> SegmentSurvey:
    name = f"{base_offset}.log"
    size = 10 * (end_offset - base_offset)
    return SegmentSurvey(name, base_offset, size, size, end_offset, last_epoch, **more)


def validated(*segments: SegmentSurvey, **facts: Any) -> Verdict:
    return validate(DirectoryFacts("here", segments, **facts))


def test_a_whole_batch_that_does_not_fit_is_damage_below_any_snapshot_too() -> None:
    snapshot = SnapshotId(80, 1)
    last = segment(0, 50, fault="another offset", is_contradiction=True)
    with pytest.raises(DamagedMetadataError, match="another offset"):
        validated(last, newest_snapshot=snapshot, usable_snapshot=snapshot, noted=FlushedEnd(10))


def test_a_snapshot_that_cannot_be_read_hides_no_loss_behind_an_older_one() -> None:
    """The newest is damaged; the log lost what was between it and the older one."""
    with pytest.raises(DamagedMetadataError, match="below 80, the newest snapshot's end"):
        validated(
            segment(0, 50),
            newest_snapshot=SnapshotId(80, 1),
            usable_snapshot=SnapshotId(60, 1),
            noted=FlushedEnd(10),
        )


def test_the_epoch_of_a_log_is_that_of_its_batches_not_of_an_empty_segment() -> None:
    """A segment that was just begun has none."""
    own = SnapshotId(40, 2)
    closed, begun = segment(0, 50, 2), segment(50, 50, -1)
    assert validated(closed, begun, newest_snapshot=own, usable_snapshot=own).end_offset == 50


def test_a_snapshot_without_any_segment_proves_that_there_was_a_log() -> None:
    snapshot = SnapshotId(60, 1)
    with pytest.raises(DamagedMetadataError, match="they were flushed to offset 60"):
        validated(newest_snapshot=snapshot, usable_snapshot=snapshot)


def test_a_closed_segment_that_ends_damaged_is_no_hole_of_a_deletion() -> None:
    """Not below a snapshot either: a deletion leaves whole segments."""
    snapshot = SnapshotId(60, 1)
    with pytest.raises(DamagedMetadataError, match="it is in a closed segment"):
        validated(
            segment(0, 30, fault="no whole batch"),
            segment(60, 70),
            newest_snapshot=snapshot,
            usable_snapshot=snapshot,
        )


def test_bytes_behind_the_last_batch_of_a_closed_segment_are_damage() -> None:
    with pytest.raises(DamagedMetadataError, match=r"garbage.*it is in a closed segment"):
        validated(segment(0, 30, fault="garbage"), segment(30, 40))


def test_epochs_do_not_fall_from_one_segment_to_the_next() -> None:
    with pytest.raises(DamagedMetadataError, match="epoch 2 after epoch 3"):
        validated(segment(0, 30, 3), segment(30, 40, 2))
    assert validated(segment(0, 30, 3), segment(30, 30, -1)).end_offset == 30


def test_one_record_between_a_snapshot_and_the_log_is_lost() -> None:
    snapshot = SnapshotId(29, 1)
    with pytest.raises(MissingMetadataError):
        validated(segment(30, 40), newest_snapshot=snapshot, usable_snapshot=snapshot)


def test_the_last_epoch_is_the_highest_of_all_segments() -> None:
    assert validated(segment(0, 30, 3), segment(30, 30, -1)).last_epoch == 3
