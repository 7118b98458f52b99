"""What a new owner reports, effect by effect; whole take-overs are simulated."""

from typing import Any

from rlm.link.messages import CopiedThrough
from rlm.maintenance.effects import MoveStart, Recall, Report, Validate
from rlm.maintenance.log_facts import LogFacts
from rlm.maintenance.takeover_task import take_over
from rlmm.api import PartitionHistory
from tests.support.tier.partition_facts import log


def effects_of(history: PartitionHistory, *, is_moved: bool) -> tuple[list[Any], str]:
    """The effects of a take-over of a log of 10 records, and what is unhealthy in the end."""
    mine = log(end=10, chain=((3, 0), (5, 10)), leader_epoch=5)
    task, seen, answer = take_over(), list[Any](), None
    try:
        while True:
            effect = task.send(answer)
            seen.append(effect)
            answer = {
                Validate: LogFacts(mine, []),
                Recall: history,
                MoveStart: is_moved,
            }.get(type(effect))
    except StopIteration as end:
        return seen, end.value.unhealthy


def test_a_log_start_above_the_high_watermark_does_not_delay_validation() -> None:
    """After an unclean election followers wait for it, and the high watermark for them."""
    carried = PartitionHistory({3: 50_000}, {3: 60_000}, 5, 5, ())
    seen, unhealthy = effects_of(carried, is_moved=False)
    assert MoveStart(10, "carried") in seen
    (report,) = (one.report for one in seen if isinstance(one, Report))
    assert isinstance(report, CopiedThrough)
    assert report.last_offset == -1, "nothing may expire"
    assert unhealthy
    seen, unhealthy = effects_of(carried, is_moved=True)
    assert not unhealthy
