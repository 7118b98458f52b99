"""An export beside another one: what the other committed is believed."""

from collections.abc import Iterable, Mapping

import pytest

from kafka_protocol.types import TopicIdPartition, TopicPartition
from pipeline.jobs import export as exporting
from pipeline.jobs.directory_ledger import DirectoryLedger
from pipeline.jobs.export import Exported, ExportOptions, export
from pipeline.jobs.values import Committed, Identity
from pipeline.values import (
    ClusterAddress,
    OffsetRange,
    Plan,
    PlanFacts,
    Split,
    SplitLimits,
    TailPiece,
    Where,
)
from tests.support.export.places import MemoryPlace
from tests.support.source.said_log import SaidLog

ORDERS = TopicPartition("orders", 0)
WHERE = Where(cluster=ClusterAddress("localhost:1"))
IDENTITY = Identity("orders", bytes(16).hex(), "read_uncommitted", "bytes")


class GrowingLog(SaidLog):
    """A log to which ten offsets come with each question for its end; all is the brokers'."""

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        start, end = self.held[ORDERS]
        self.held[ORDERS] = start, end + 10
        return super().latest(partitions)

    def plan(self, ranges: Mapping[TopicPartition, OffsetRange], limits: SplitLimits) -> Plan:
        super().plan(ranges, limits)
        of = TopicIdPartition(bytes(16), 0, "orders")
        splits = [
            Split(one, (TailPiece(of, start, end - 1),), 1) for one, (start, end) in ranges.items()
        ]
        return Plan(tuple(splits), PlanFacts())


class OvertakingLedger(DirectoryLedger):
    """Another export ends right before a look, or right before a run begins."""

    def __init__(self, log: GrowingLog, before: str) -> None:
        super().__init__(MemoryPlace())
        self._log, self._before = log, before

    def look(self) -> Committed | None:
        """See `Ledger`."""
        self._other("look")
        return super().look()

    def begin(self, run: str, identity: Identity) -> Committed:
        """See `Ledger`."""
        if run != "other":
            self._other("begin")
        return super().begin(run, identity)

    def _other(self, step: str) -> None:
        if step == self._before:
            self._before = ""
            super().begin("other", IDENTITY)
            end = self._log.latest([ORDERS])[ORDERS]
            self.commit("other", Committed(IDENTITY, {0: end}), [])


@pytest.mark.parametrize("before", ["look", "begin"])
def test_another_export_that_went_further_is_no_loss(
    monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    log = GrowingLog({ORDERS: (0, 100)})
    monkeypatch.setattr(exporting, "open_log", lambda _where: log)
    monkeypatch.setattr(exporting, "run_job", lambda *_: [])
    ledger = OvertakingLedger(log, before)
    done: Exported = export(None, ExportOptions("orders", WHERE, tail=True), ledger)
    assert done.runs == 1
    held = ledger.look()
    assert held is not None
    assert held.offsets == {0: log.held[ORDERS][1]}
