"""Committed rows where an unclean election gave up the marker of a transaction."""

from pathlib import Path

from pipeline.values import Isolation
from tests.support.lake.bucket import Bucket
from tests.support.lake.reading import check_rows, rows_of_log, where_alone


def test_a_marker_that_an_election_gave_up_aborts_nothing(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition()
        orders.append("a").append("in doubt", producer_id=7, transactional=True)
        orders.append("given up").abort(7).append("too").roll().copy()  # the marker is offset 3
        orders.elect(2, at=2).append("b", "c").commit(7).append("d").roll().copy()
        values = [row.value for row in rows_of_log(where_alone(bucket, COMMITTED), "orders")]
        assert values == [b"a", b"in doubt", b"b", b"c", b"d"]
        check_rows(bucket)


def test_a_marker_that_an_election_gave_up_hides_no_later_index(tmp_path: Path) -> None:
    with Bucket(tmp_path) as bucket:
        orders = bucket.partition()
        orders.append("a").append("x", producer_id=7, transactional=True)
        orders.append(*"given up").abort(7).append("too").roll().copy()
        orders.elect(2, at=2).abort(7).append("b", producer_id=8, transactional=True)
        orders.append("c").abort(8).append("d").roll().copy()
        values = [row.value for row in rows_of_log(where_alone(bucket, COMMITTED), "orders")]
        assert values == [b"a", b"c", b"d"]
        check_rows(bucket)


COMMITTED = Isolation.READ_COMMITTED
