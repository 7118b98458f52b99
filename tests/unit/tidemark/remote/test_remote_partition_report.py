"""What is said of a partition's tiers, and how it is shown."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from kafka_protocol.types import EpochEntry
from pipeline.cluster.cluster import PartitionOffsets, chain_from_ends
from rlmm.lineage import Placement
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.samples.remote import DELETING, NOW_MS, STARTED, metadata
from tidemark.remote.axis import ASCII, UNICODE, Ink, Stretch
from tidemark.remote.partition_report import PartitionReport, report
from tidemark.remote.segments_view import (
    LINES_SHOWN,
    TopicReport,
    age_text,
    as_json,
    as_text,
    size_text,
)

CHAIN = [EpochEntry(0, 0)]
SNAPSHOT = Path(__file__).with_name("segments_view.txt")


def offsets(log_start: int, local: int, tiered: int | None, end: int) -> PartitionOffsets:
    return PartitionOffsets(log_start, local, tiered, end)


def of(
    where: PartitionOffsets | None, *segments: RemoteLogSegmentMetadata, number: int = 0
) -> PartitionReport:
    return report(number, where, segments, CHAIN)


def problems(found: PartitionReport) -> list[str]:
    return [one.text for one in found.problems]


def test_tiers_that_meet_have_no_problem() -> None:
    found = of(offsets(0, 20, 19, 30), metadata(0, 9), metadata(10, 19))
    assert (found.remote, found.local) == ([Stretch(0, 20)], [Stretch(20, 30)])
    assert problems(found) == []


def test_offsets_in_neither_tier_are_a_gap() -> None:
    found = of(offsets(0, 25, 19, 30), metadata(0, 9), metadata(15, 19))
    assert problems(found) == [
        "gap: offsets 10 to 14 are in neither tier",
        "gap: offsets 20 to 24 are in neither tier",
    ]


def test_a_gap_that_the_local_tier_fills_is_none() -> None:
    assert problems(of(offsets(0, 0, 19, 30), metadata(10, 19))) == []


def test_what_lies_below_the_log_start_is_no_gap_and_no_overlap() -> None:
    found = of(offsets(10, 20, 19, 30), metadata(0, 9), metadata(0, 9, number=8), metadata(10, 19))
    assert problems(found) == []
    assert found.remote == [Stretch(10, 20)]


def test_two_segments_with_the_same_offsets_overlap() -> None:
    found = of(offsets(0, 20, 19, 30), metadata(0, 12), metadata(10, 19))
    assert problems(found) == ["overlap: two segments hold offsets 10 to 12"]


def test_a_segment_of_a_lost_lineage_is_not_counted_as_remote() -> None:
    lost = metadata(10, 19, epoch=7)
    found = of(offsets(0, 0, 9, 30), metadata(0, 9), lost)
    assert found.remote == [Stretch(0, 10)]
    assert found.placements[lost.id.id] is Placement.OFF_CHAIN
    assert problems(found)[0].startswith("off-chain: the segment of offsets 10 to 19 is wholly")


def test_copies_and_deletions_under_way_are_neither_remote_nor_wrong() -> None:
    found = of(
        offsets(10, 10, -1, 30), metadata(0, 9, state=DELETING), metadata(10, 19, state=STARTED)
    )
    assert (found.remote, found.finished_count, problems(found)) == ([], 0, [])


def test_without_a_leader_the_remote_tier_is_still_shown() -> None:
    found = report(0, None, [metadata(5, 9)], None)
    assert (found.axis, found.remote, found.local) == (Stretch(5, 10), [Stretch(5, 10)], [])


def test_a_chain_out_of_the_ends_of_neighbouring_epochs() -> None:
    assert chain_from_ends({0: 10, 2: 30, 1: 20}, 2) == [
        EpochEntry(0, 0),
        EpochEntry(1, 10),
        EpochEntry(2, 20),
    ]
    assert chain_from_ends({}, 0) == []


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_023, "1,023 B"),
        (1_024, "1 KiB"),
        (1_023_487, "999 KiB"),
        (1_023_488, "0.976 MiB"),  # 999.5 KiB
        (1_023_759, "0.976 MiB"),
        (1_000 << 10, "0.977 MiB"),
        (1 << 20, "1 MiB"),
        ((999 << 20) + 900_000, "0.976 GiB"),
        (1 << 40, "1 TiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (59, "59s"), (61, "1m1s"), (3_700, "1h1m"), (90_000, "1d1h")],
)
def test_ages(seconds: int, text: str) -> None:
    assert age_text(seconds * 1_000) == text


def scenario() -> TopicReport:
    many = [metadata(n * 10, n * 10 + 9) for n in range(40)]
    return TopicReport(
        "orders",
        bytes(range(16)),
        "cluster",
        True,
        [
            of(offsets(0, 10, 19, 30), metadata(0, 9), metadata(10, 19, age_ms=90_000_000)),
            of(None, number=1),
            of(offsets(0, 0, -1, 0), number=2),
            of(offsets(0, 7, -1, 7), number=3),
            of(offsets(5, 395, 399, 420), *many, metadata(400, 409, state=STARTED), number=4),
            of(
                offsets(0, 300, 289, 10**12),
                *(metadata(n, n + 50) for n in range(0, 250, 50)),
                metadata(280, 289, epoch=3),
                number=5,
            ),
        ],
    )


def shown(found: TopicReport, width: int, ink: Ink, *, everything: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    console.print(as_text(found, now_ms=NOW_MS, width=width, ink=ink, everything=everything))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def test_the_drawing_is_the_one_that_was_looked_at() -> None:
    """When it changes: look at it, then write it: `python tests/unit/tidemark/remote/<this>`."""
    assert shown(scenario(), 100, UNICODE) == SNAPSHOT.read_text()


def test_a_narrow_terminal_and_ascii_lose_no_line() -> None:
    text = shown(scenario(), 80, ASCII)
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()


def test_of_large_offsets_the_states_are_whole_at_80_columns() -> None:
    billions = 12_345_678_901
    segments = [metadata(billions + 10 * n, billions + 10 * n + 9) for n in range(21)]
    found = of(offsets(billions, billions, billions + 209, billions + 210), *segments)
    text = shown(TopicReport("orders", bytes(16), "cluster", True, [found]), 80, UNICODE)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len([one for one in lines if " finished " in one]) == LINES_SHOWN
    (head,) = [one for one in lines if one.lstrip().startswith("base")]
    assert head.split() == [
        "base",
        "end",
        "size",
        "epochs",
        "state",
        "age",
        *["segment", "id"],
        "broker",
    ]
    for item in ("T highest tiered 12,345,679,110", "E log end 12,345,679,111"):
        assert any(item in one for one in lines)


def test_a_leader_that_does_not_know_what_is_tiered_is_shown_with_the_rest() -> None:
    found = of(offsets(0, 10, None, 30), metadata(0, 9))
    topic = TopicReport("orders", bytes(16), "cluster", True, [found])
    assert "highest tiered not known" in shown(topic, 120, ASCII)
    (partition,) = as_json(topic, now_ms=NOW_MS)["partitions"]
    assert (partition["highest_tiered_offset"], partition["log_end_offset"]) == (None, 30)


def test_all_shows_every_segment() -> None:
    short, long = (shown(scenario(), 120, ASCII, everything=all_) for all_ in (False, True))
    assert "21 more" in short
    assert "more" not in long
    assert len(long.splitlines()) - len(short.splitlines()) == 20


def test_the_json_keeps_its_keys_and_all_segments() -> None:
    found = json.loads(json.dumps(as_json(scenario(), now_ms=NOW_MS)))
    assert sorted(found) == ["cluster_id", "partitions", "tiered", "topic", "topic_id"]
    assert [len(one["segments"]) for one in found["partitions"]] == [2, 0, 0, 0, 41, 6]
    assert sorted(found["partitions"][0]) == [
        "finished_bytes",
        "finished_segments",
        "highest_tiered_offset",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "problems",
        "remote_ranges",
        "segments",
    ]
    assert sorted(found["partitions"][0]["segments"][0]) == [
        "age_ms",
        "broker_id",
        "custom_metadata",
        "end_offset",
        "event_timestamp_ms",
        "leader_epochs",
        "max_timestamp_ms",
        "on_chain",
        "segment_id",
        "size_bytes",
        "start_offset",
        "state",
    ]


if __name__ == "__main__":
    SNAPSHOT.write_text(shown(scenario(), 100, UNICODE))


def test_an_older_epoch_does_not_reach_into_what_its_successor_writes() -> None:
    assert chain_from_ends({0: 10, 1: 20}, 4) == [
        EpochEntry(0, 0),
        EpochEntry(1, 10),
        EpochEntry(4, 20),
    ]
