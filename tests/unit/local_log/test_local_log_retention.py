"""What goes, and what must stay."""

from dataclasses import replace

from local_log.config import LogConfig
from local_log.log.results import LogHooks
from local_log.log.retention_policy import Reason, RetentionFacts, SegmentFacts, decide
from local_log.log.truncation import truncate_to
from tests.support.worlds.local_log import (
    NOW_MS,
    SMALL,
    append,
    filled,
    open_log,
    retain,
    with_config,
)

NOW = 10_000
FACTS = RetentionFacts(log_start_offset=0, high_watermark=100, copied_through=-1, now_ms=NOW)
KEEP = LogConfig(retention_ms=-1, retention_bytes=-1)


def _segments(*timestamps: int, size: int = 100) -> list[SegmentFacts]:
    return [
        SegmentFacts(10 * i, 10 * i + 10, size, timestamp) for i, timestamp in enumerate(timestamps)
    ]


def test_age_equal_to_the_limit_stays():
    config = replace(KEEP, retention_ms=1000)
    assert decide(_segments(8999, 9000, 9500), FACTS, config).drop == (Reason.TIME,)


def test_size_limit_is_kept_by_what_is_left():
    segments = _segments(1, 1, 1, 1)
    assert decide(segments, FACTS, replace(KEEP, retention_bytes=200)).drop == (Reason.SIZE,) * 2
    assert decide(segments, FACTS, replace(KEEP, retention_bytes=201)).drop == (Reason.SIZE,)
    assert decide(segments, FACTS, replace(KEEP, retention_bytes=400)).drop == ()


def test_nothing_above_the_high_watermark_goes():
    config = replace(KEEP, retention_ms=0)
    facts = replace(FACTS, high_watermark=19)
    assert decide(_segments(1, 1, 1), facts, config).drop == (Reason.TIME,)


def test_segment_below_the_log_start_goes_whatever_the_limits():
    facts = replace(FACTS, log_start_offset=20)
    decision = decide(_segments(1, 1, 1), facts, KEEP)
    assert decision.drop == (Reason.LOG_START,) * 2
    assert not decision.raises_log_start


def test_whole_log_expires_with_its_active_segment_rolled():
    decision = decide(_segments(1, 1), FACTS, replace(KEEP, retention_ms=1000))
    assert (len(decision.drop), decision.roll_active, decision.raises_log_start) == (2, True, True)


def test_empty_active_segment_stays():
    segments = [*_segments(1), SegmentFacts(10, 10, 0, 1)]
    decision = decide(segments, FACTS, replace(KEEP, retention_ms=1000))
    assert (decision.drop, decision.roll_active) == ((Reason.TIME,), False)


def test_compacted_topic_keeps_what_is_old():
    config = replace(KEEP, retention_ms=0, cleanup_policy=frozenset({"compact"}))
    assert decide(_segments(1, 1), FACTS, config).drop == ()


def test_gap_in_age_ends_the_pass():
    config = replace(KEEP, retention_ms=1000)
    assert decide(_segments(1, NOW, 1), FACTS, config).drop == (Reason.TIME,)


TIERED = replace(KEEP, remote_storage_enable=True, local_retention_ms=1000)


def test_tiered_segment_stays_until_it_is_copied():
    segments = _segments(1, 1, NOW)
    assert decide(segments, FACTS, TIERED).drop == ()
    assert decide(segments, replace(FACTS, copied_through=8), TIERED).drop == ()
    decision = decide(segments, replace(FACTS, copied_through=9), TIERED)
    assert (decision.drop, decision.raises_log_start) == ((Reason.LOCAL_TIME,), False)


def test_tiered_log_start_takes_segments_that_were_never_copied():
    facts = replace(FACTS, log_start_offset=15)
    assert decide(_segments(1, 1, NOW), facts, TIERED).drop == (Reason.LOG_START,)


def test_idle_tiered_topic_closes_its_active_segment_so_that_it_is_copied():
    decision = decide(_segments(1), FACTS, TIERED)
    assert (decision.drop, decision.roll_active) == ((), True)
    assert not decide(_segments(NOW), FACTS, TIERED).roll_active


def test_local_limits_of_minus_two_are_the_total_ones():
    config = replace(TIERED, local_retention_ms=-2, retention_ms=500)
    facts = replace(FACTS, copied_through=99)
    assert decide(_segments(1, NOW), facts, config).drop == (Reason.LOCAL_TIME,)


def test_once_copying_ends_copied_records_expire_by_the_total_limits():
    config = replace(TIERED, remote_log_copy_disable=True, local_retention_ms=0, retention_ms=5000)
    copied = replace(FACTS, copied_through=9)
    assert decide(_segments(6000, NOW), copied, config).drop == ()
    decision = decide(_segments(1, 1, NOW), copied, config)
    assert (decision.drop, decision.raises_log_start) == ((Reason.TIME,), False)
    assert decide(_segments(1, 1, NOW), FACTS, config).drop == ()
    raised = replace(copied, log_start_offset=20)
    decision = decide(_segments(1, 1, NOW), raised, config)
    assert (decision.drop, decision.raises_log_start) == ((Reason.LOG_START,) * 2, False)


# -- on a real log -----------------------------------------------------------------------------


def test_dropped_segments_are_renamed_then_removed(tmp_path):
    waiting = []
    hooks = LogHooks(delete_later=lambda paths, delay_ms: waiting.append((paths, delay_ms)))
    log = filled(tmp_path, config=with_config(retention_bytes=3000), hooks=hooks)
    before = len(log.segments.all)
    result = retain(log, NOW_MS)
    assert result
    assert len(log.segments.all) == before - len(result)
    assert log.log_start_offset == log.local_log_start_offset == log.segments.all[0].base_offset
    assert log.epochs.entries()[0].start_offset == log.log_start_offset
    assert {delay for _, delay in waiting} == {60_000}
    assert all(path.name.endswith(".deleted") for paths, _ in waiting for path in paths)
    log.close()
    again = open_log(tmp_path, config=log.config)
    assert again.log_start_offset == log.log_start_offset
    assert not list(tmp_path.glob("*.deleted"))


def test_reader_of_a_dropped_segment_still_gets_its_bytes(tmp_path):
    log = filled(tmp_path, config=with_config(retention_bytes=0))
    (region,) = log.read(0, 10_000).regions
    expected = log.disk.read_at(region.file, region.position, region.size_bytes)
    retain(log, NOW_MS)
    assert not (tmp_path / f"{0:020d}.log").exists()
    assert log.disk.read_at(region.file, region.position, region.size_bytes) == expected


def test_tiered_log_drops_local_segments_and_keeps_start_and_chain(tmp_path):
    config = with_config(remote_storage_enable=True, local_retention_bytes=0, retention_bytes=-1)
    log = filled(tmp_path, config=config, log_start=0)
    log.epochs.assign(4, log.log_end_offset)
    append(log, epoch=4)
    log.update_high_watermark(log.log_end_offset)
    assert retain(log, NOW_MS) == ()
    second = log.segments.all[2].base_offset
    assert log.set_copied_through(second - 1, 0)
    assert len(retain(log, NOW_MS)) == 2
    assert (log.log_start_offset, log.local_log_start_offset) == (0, second)
    assert log.epochs.entries()[0].start_offset == 0
    log.close()
    again = open_log(tmp_path, config=config, log_start=0)
    assert (again.log_start_offset, again.local_log_start_offset) == (0, second)
    assert again.epochs.entries() == log.epochs.entries()


def test_copied_through_holds_only_on_the_logs_chain_and_is_cut_with_it(tmp_path):
    log = filled(tmp_path, config=with_config(remote_storage_enable=True), log_start=0)
    assert not log.set_copied_through(30, 5)
    assert not log.set_copied_through(log.log_end_offset, 0)
    assert log.set_copied_through(30, 0)
    truncate_to(log, 20)
    assert log.copied_through == log.log_end_offset - 1 < 20
    log.epochs.assign(3, log.log_end_offset)
    assert log.copied_through == -1


def test_lost_log_start_of_a_tiered_log_is_unknown_until_told(tmp_path):
    config = with_config(remote_storage_enable=True, local_retention_bytes=0)
    log = filled(tmp_path, config=config, log_start=0)
    log.set_copied_through(log.segments.all[2].base_offset - 1, 0)
    retain(log, NOW_MS)
    log.close()
    again = open_log(tmp_path, config=config, log_start=None, high_watermark=log.log_end_offset)
    assert not again.log_start_known
    assert again.epochs.entries()[0].start_offset == 0
    again.raise_log_start(3)
    assert (again.log_start_known, again.log_start_offset) == (True, 3)


def test_default_limits_keep_a_fresh_log(tmp_path):
    log = filled(tmp_path, config=SMALL)
    assert retain(log, NOW_MS + 1000) == ()
