"""Output of `tidemark rsm check`: lines and figures for people, JSON for programs."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rsm_plugins.contract.run import Outcome, Verdict
from tidemark.rsm.speed import Speed

_COLORS = {Verdict.KEPT: "green", Verdict.BROKEN: "red", Verdict.NOT_ASKED: "yellow"}
_MARKS = {Verdict.KEPT: "kept", Verdict.BROKEN: "BROKEN", Verdict.NOT_ASKED: "not asked"}
_MARK_CHARS = max(len(mark) for mark in _MARKS.values()) + 2
_SETTING = re.compile(r"rsm\.config\.[a-z0-9.]*[a-z0-9](?:=[\w.:-]*\w)?")


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a check found.

    Attributes:
        plugin: its class name.
        speed: None where it was not measured.
        speed_reason: why it was not.
        left: what could not be deleted.
        interrupted_at: the promise that was being asked when the check was ended; empty: it came to
            its end.
        stopped_for: why the others were not asked, where many broke for one reason; empty: all
            were.
        warnings: of the plugin's settings.
    """

    plugin: str
    outcomes: Sequence[Outcome]
    speed: Speed | None
    speed_reason: str
    left: Sequence[str]
    interrupted_at: str = ""
    stopped_for: str = ""
    warnings: Sequence[str] = ()

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
        "settings_named": settings_named(report),
        "interrupted_at": report.interrupted_at,
        "stopped_for": report.stopped_for,
        "warnings": list(report.warnings),
    }


def line_of(outcome: Outcome) -> str:
    """The result of a promise, for people; coloured."""
    color = _COLORS[outcome.verdict]
    mark = click.style(_MARKS[outcome.verdict], fg=color, bold=outcome.verdict is Verdict.BROKEN)
    lines = [mark + " " * (_MARK_CHARS - len(_MARKS[outcome.verdict])) + outcome.sentence]
    reasons = outcome.reason.splitlines()
    if outcome.verdict is Verdict.BROKEN:
        reasons.append(f"({outcome.name})")
    return "\n".join([*lines, *(" " * _MARK_CHARS + click.style(one, fg=color) for one in reasons)])


def settings_named(report: Report) -> list[str]:
    """Settings that the reasons of broken promises name as a remedy, the most frequent first."""
    broken = [one.reason for one in report.outcomes if one.verdict is Verdict.BROKEN]
    counted = Counter(name for reason in broken for name in set(_SETTING.findall(reason)))
    return [name for name, _ in counted.most_common()]


def summary(report: Report) -> Group:
    """The text below the lines of the promises, ready to print."""
    parts: list[Table | Text] = [Text()]
    if report.speed is not None:
        parts += [_speed(report.speed), Text()]
    elif report.speed_reason:
        parts += [Text(f"speed not measured: {report.speed_reason}"), Text()]
    if report.interrupted_at:
        parts.append(Text(f"ended while this was asked: {report.interrupted_at}"))
    if named := settings_named(report):
        parts.append(Text(f"what the reasons above name as a remedy: {', '.join(named)}"))
    parts += [Text(one) for one in report.warnings]
    kept, broken = report.count(Verdict.KEPT), report.count(Verdict.BROKEN)
    if report.stopped_for:
        parts.append(Text(report.stopped_for))
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
