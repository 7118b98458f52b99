"""What ends a pass of the remover, and what does not: a claim found refused, a record not taken."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from rlmm.api import PartitionDeleteState, PartitionDeletion
from rlmm.testing import PARTITION
from rlmm.topic_based.removal_ports import NotTakenError, StoreGate
from tests.support.tier.remover_setup import (
    COPY_MAX_MS,
    FENCE,
    GRACE_MS,
    S0,
    S1,
    MetadataLog,
    Setup,
)

FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED
STEPS = 15


class Gate:
    """Counts what the remover does to the outside; shut while it does number `at`."""

    def __init__(self, setup: Setup, at: int) -> None:
        self.at, self.count = at, 0
        self.wrap(setup.manager, "put_partition_delete")
        self.wrap(setup.manager, "update")
        self.wrap(setup.storage, "delete_log_segment_data")
        self.wrap(setup.log, "topics_emptied")

    def is_open(self) -> bool:
        return self.count < self.at

    def wrap(self, of: object, name: str) -> None:
        inner: Callable[..., Any] = getattr(of, name)

        def step(*args: Any) -> Any:
            self.count += 1
            return inner(*args)

        setattr(of, name, step)


def passes(setup: Setup) -> None:
    """As many passes, and as much time between them, as a deletion takes."""
    for wait_ms in (0, GRACE_MS, 0, COPY_MAX_MS + 1, 0, GRACE_MS, 0):
        setup.clock.advance(wait_ms)
        setup.run_pass()


def deleted_topic(root: Path, gate_at: int) -> tuple[Setup, Gate]:
    """Two partitions of a removed topic, and two segments."""
    setup = Setup(root)
    setup.copy(S0)
    setup.copy(S1)
    setup.manager.own(PARTITION._replace(partition=1), FENCE, 50)
    gate = Gate(setup, gate_at)
    setup.remover = setup.new_remover(StoreGate(may_write=gate.is_open))
    setup.delete_topic()
    return setup, gate


@pytest.mark.parametrize("at", range(STEPS))
def test_nothing_more_is_written_or_deleted_from_the_moment_of_the_refusal(
    tmp_path: Path, at: int
) -> None:
    setup, gate = deleted_topic(tmp_path / "remote", at)
    passes(setup)
    assert gate.count == at
    gate.at = 1_000
    passes(setup)
    assert setup.state() is FINISHED
    assert setup.objects() == []


def test_the_gate_is_tried_at_each_step(tmp_path: Path) -> None:
    setup, gate = deleted_topic(tmp_path / "remote", 1_000)
    passes(setup)
    assert gate.count == STEPS
    assert setup.log.removed == set()


class FullLog(MetadataLog):
    """Takes no records."""

    is_full = True

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        if self.is_full:
            raise NotTakenError("no space left")
        super().topics_emptied(topic_ids)


def test_a_full_metadata_log_is_unhealthy_and_delays_no_deletion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = FullLog()
    setup = Setup(tmp_path / "remote", log=log)
    setup.copy(S0)
    setup.delete_topic()
    passes(setup)
    assert setup.objects() == []
    assert setup.state() is FINISHED
    [reason] = setup.remover.unhealthy
    assert "no space left" in reason
    assert "see that the disk of metadata.log.dir can be written" in reason
    assert [record.message for record in caplog.records].count(reason) == 1
    log.is_full = False
    setup.run_pass()
    assert setup.remover.unhealthy == ()
    passes(setup)
    assert setup.log.removed == set()


class LateLog(MetadataLog):
    """Takes a record, and its answer does not come in time."""

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        super().topics_emptied(topic_ids)
        raise NotTakenError("the broker does not answer")


def test_a_record_that_was_taken_after_all_is_unhealthy_no_more(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "remote", log=LateLog())
    setup.copy(S0)
    setup.delete_topic()
    passes(setup)
    assert setup.log.removed == set()
    setup.run_pass()
    assert setup.remover.unhealthy == ()


def test_removals_stay_listed_if_a_metadata_partition_goes_meanwhile(
    tmp_path: Path,
) -> None:
    setup = Setup(tmp_path / "remote")
    setup.copy(S0)
    setup.delete_topic()
    removed, leads_all = set(setup.log.removed), True

    def goes_away() -> list[PartitionDeletion]:
        nonlocal leads_all
        leads_all = False
        return []

    setup.manager.led_partitions = goes_away  # type: ignore[method-assign]
    setup.manager.leads_all = lambda: leads_all  # type: ignore[method-assign]
    for _ in range(2):
        leads_all = True
        setup.run_pass()
        setup.clock.advance(GRACE_MS)
    assert setup.log.removed == removed != set()


def test_what_else_is_unhealthy_stays_beside_it(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "remote", log=FullLog(topic_ids=set(), removed={b"g" * 16}))
    setup.copy(S0)
    setup.remover = setup.new_remover()
    passes(setup)
    assert [("tidemark remote forget" in each) for each in setup.remover.unhealthy] == [True, False]
