"""A log on a disk that forgets names and content that were not fsynced."""

from local_log_kit import filled, open_log


def test_an_index_lost_below_the_recovery_point_is_made_again(tmp_path):
    """Deletion renames a segment's files one by one; a cut may keep one rename and lose another."""
    log = filled(tmp_path)
    log.flush()
    point = log.recovery_point
    log.close(clean=False)
    log.segments[0].path(".index").unlink()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()  # so that the producers are read from the first segment on
    log = open_log(tmp_path, clean=False, recovery_point=point)
    assert log.log_start_offset == 0
    assert log.log_end_offset == point
