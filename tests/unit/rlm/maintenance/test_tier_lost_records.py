"""The metadata topic lost records: the tier takes back what it has told the broker, then acts."""

from pathlib import Path

import pytest

from rlm.link.messages import CopiedThrough, Report, ValidationWithdrawn
from rlm.maintenance.copy_task import REFUSED_REPORT_AGAIN_MS
from rlmm.api import Fence
from rsm_plugins.segment import SegmentState
from tests.support.tier.pair import NAMES, Pair


def fences(pair: Pair) -> list[Fence]:
    """The pairs in the topic, in its order, each once."""
    return list(dict.fromkeys(event.stamp.fence for event, _ in pair.metadata.log))


def copied_through(reports: list[Report]) -> list[CopiedThrough]:
    return [report for report in reports if isinstance(report, CopiedThrough)]


def cut_back(pair: Pair) -> None:
    """Lose the last FINISHED and what came after."""
    found = [
        order
        for order, (event, _) in enumerate(pair.metadata.log)
        if getattr(getattr(event, "update", None), "state", None)
        is SegmentState.COPY_SEGMENT_FINISHED
    ]
    pair.metadata.lose(found[-1])


def test_after_lost_records_the_broker_is_told_at_once_to_keep_what_it_has(pair: Pair) -> None:
    before = len(pair.log.reports)
    cut_back(pair)
    pair.pump()  # no time passes, no pass is due
    names = (*NAMES, pair.log.leader_epoch)
    first, *later = pair.log.reports[before:]
    assert first == ValidationWithdrawn(*names)
    assert all(report.last_offset < 59 for report in copied_through(later))
    assert pair.log.copied < 59


def test_after_lost_records_the_owner_takes_its_next_incarnation(pair: Pair) -> None:
    (before,) = fences(pair)
    cut_back(pair)
    pair.pump()
    assert pair.metadata.is_ready(pair.log.partition)
    first, second = fences(pair)
    assert first == before
    assert second > before
    assert second.leader_epoch == before.leader_epoch


def test_nothing_is_owned_before_the_broker_has_forgotten(pair: Pair) -> None:
    pair.workers.held.add("rlm-validation")
    end = len(pair.metadata.log) - 1
    pair.metadata.lose(end)
    pair.pump()
    assert pair.log.copied == 59
    assert len(pair.metadata.log) == end, "no barrier so far"
    pair.workers.held.clear()
    pair.pump()
    assert len(pair.metadata.log) > end


def test_a_link_that_fails_meanwhile_is_tried_again(pair: Pair) -> None:
    pair.log.leader_epoch += 1  # the broker refuses all questions under the old one
    cut_back(pair)
    pair.pump()
    pair.log.leader_epoch -= 1
    pair.scheduler.advance(60_000)
    pair.pump()
    assert pair.metadata.is_ready(pair.log.partition)
    assert pair.log.copied < 59


def test_nothing_is_announced_on_a_report_that_the_broker_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chain was clipped since: to it the end that it opened with still counts."""
    pair = Pair(tmp_path)
    pair.log.fill(3, records=20)
    take, refused = pair.log.report, list[Report]()

    def report(sent: Report) -> bool:
        if len(refused) < 2 and isinstance(sent, CopiedThrough):
            refused.append(sent)
            return False
        return take(sent)

    monkeypatch.setattr(pair.log, "report", report)
    pair.assign()
    assert len(refused) == 2, "that of the take-over, and that of the first pass"
    announced = [event.metadata for event, _ in pair.metadata.log if hasattr(event, "metadata")]
    assert all(not segment.segment_size_bytes for segment in announced), "the barrier alone"
    pair.scheduler.advance(REFUSED_REPORT_AGAIN_MS)
    pair.pump()
    assert pair.log.copied == 59
