"""What `tidemark rsm check` found, as a table for people and as JSON for programs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rsm_plugins.contract.run import Outcome, Verdict
from tidemark.rsm.speed import Speed

_MARKS = {
    Verdict.KEPT: Text("kept", style="green"),
    Verdict.BROKEN: Text("BROKEN", style="bold red"),
    Verdict.NOT_ASKED: Text("not asked", style="yellow"),
}


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a check found.

    Attributes:
        plugin: its class name.
        speed: None where it was not measured.
        speed_reason: why it was not.
        left: what could not be deleted.
    """

    plugin: str
    outcomes: Sequence[Outcome]
    speed: Speed | None
    speed_reason: str
    left: Sequence[str]

    def count(self, verdict: Verdict) -> int:
        """How many promises ended so."""
        return Counter(outcome.verdict for outcome in self.outcomes)[verdict]


def as_json(report: Report) -> dict[str, Any]:
    """The report in plain types; times in ms, speed in MB/s."""
    return {
        "plugin": report.plugin,
        "kept": report.count(Verdict.KEPT),
        "broken": report.count(Verdict.BROKEN),
        "not_asked": report.count(Verdict.NOT_ASKED),
        "promises": [
            {
                "name": outcome.name,
                "promise": outcome.sentence,
                "verdict": outcome.verdict.value,
                "reason": outcome.reason,
                "took_ms": outcome.took_ms,
            }
            for outcome in report.outcomes
        ],
        "speed": None if report.speed is None else asdict(report.speed),
        "left_behind": list(report.left),
    }


def as_text(report: Report) -> Group:
    """The report, ready to print."""
    promises = Table(box=None, pad_edge=False, show_header=False)
    promises.add_column(min_width=max(len(mark) for mark in _MARKS.values()))
    promises.add_column()
    for outcome in report.outcomes:
        sentence = Text(outcome.sentence)
        if outcome.verdict is Verdict.BROKEN:
            sentence.append(f"\n{outcome.reason}\n({outcome.name})", style="red")
        elif outcome.verdict is Verdict.NOT_ASKED:
            sentence.append(f"\n{outcome.reason}", style="yellow")
        promises.add_row(_MARKS[outcome.verdict], sentence)
    parts: list[Table | Text] = [promises, Text()]
    if report.speed is not None:
        parts += [_speed(report.speed), Text()]
    elif report.speed_reason:
        parts += [Text(f"speed not measured: {report.speed_reason}"), Text()]
    kept, broken = report.count(Verdict.KEPT), report.count(Verdict.BROKEN)
    text = f"{report.plugin}: {kept} promises kept, {broken} broken"
    not_asked = report.count(Verdict.NOT_ASKED)
    parts.append(Text(f"{text}, {not_asked} not asked" if not_asked else text, style="bold"))
    return Group(*parts)


def _speed(speed: Speed) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    mib = speed.segment_bytes / (1 << 20)
    table.add_row(f"copy of {mib:g} MiB", f"{speed.copy_mb_s:g} MB/s")
    table.add_row(f"read of {mib:g} MiB", f"{speed.read_mb_s:g} MB/s")
    table.add_row("ranges of 1 MiB, four threads", f"{speed.four_threads_mb_s:g} MB/s")
    for name, spread in (
        ("range of 1 MiB, first byte", speed.first_byte),
        ("range of 1 MiB, whole", speed.range_1mib),
        ("delete", speed.delete),
    ):
        table.add_row(name, f"p50 {spread.p50_ms:g} ms, p95 {spread.p95_ms:g} ms")
    return table
