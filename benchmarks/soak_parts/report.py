"""Evaluates a broker's log and the reports of the clients, and shows the result."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.soak_parts.store import SAYS
from benchmarks.soak_parts.validator import Verdict

SHOWN_MAX = 12
LINE_BYTES_MAX = 1 << 18
"""Of what the clients say; an hour has many lines."""
LEVEL = re.compile(r"^\[[-\d]{10} [\d:,+-]+\] (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)$")
"""Lines of the broker and of its tier."""
REASON = re.compile(r"closed connection: .* reason=(.{0,40})")
STORE = re.compile(r"the soak's store: (.*?) \(\S+\)$")
HELD = re.compile(r"the event loop was held: held_ms=\d+ callback=(\S+) at=(\S+)")
MUST_COME = (
    "lanes acknowledged",
    "lanes compared",
    "lanes read by the group",
    "small_producer records",
    "remote_reader records",
    "idle_consumer fetches",
    "slow_writer answered",
    "topic_maker topics",
    "group_goer groups",
    "new_producer ids",
)
"""A client that does nothing proves nothing."""


class Log:
    """A broker's log, whole.

    Attributes:
        store: The store's counts of its calls and failures.
    """

    def __init__(self, path: Path) -> None:
        self.closed: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()
        self.errors: list[str] = []
        self.tracebacks = 0
        self.store: dict[str, int] = {}
        with path.open(errors="replace") as lines:
            for line in lines:
                self._take(line.rstrip("\n"))

    def _take(self, line: str) -> None:
        if line.startswith("Traceback "):
            self.tracebacks += 1
        found = LEVEL.match(line)
        if found is None:
            return
        level, text = found.groups()
        if level in ("ERROR", "CRITICAL") and SAYS not in text:
            self.errors.append(line)
        if (told := STORE.search(text)) is not None:
            self.store = {
                name: int(count) for name, _, count in (w.partition("=") for w in told[1].split())
            }
        elif (closed := REASON.search(text)) is not None:
            self.closed[re.sub(r"\d+", "N", closed[1])] += 1
        elif (held := HELD.search(text)) is not None:
            self.held[f"{held[1]} at {held[2]}"] += 1
        elif level == "WARNING":
            self.warnings[re.sub(r"[\d-]{2,}|\d", "N", text)[:110]] += 1

    def findings(self) -> list[str]:
        found = [f"{self.tracebacks} tracebacks in the log"] if self.tracebacks else []
        if self.errors:
            found.append(f"{len(self.errors)} ERROR lines in the log: {self.errors[0][:300]}")
        if not self.store.get("failed"):
            found.append("the store never failed")
        return found


def last_words(path: Path) -> dict[str, Any]:
    """The last whole line of the clients' output; empty before the first."""
    with path.open("rb") as words:
        words.seek(max(0, path.stat().st_size - LINE_BYTES_MAX))
        whole = words.read().split(b"\n")[:-1]
    return dict(json.loads(whole[-1])) if whole else {}


def findings_of_load(words: dict[str, Any], code: int | None) -> list[str]:
    found = [] if code == 0 else [f"the clients' process ended with {code}"]
    if "wrong" not in words:
        return [*found, "the clients did not come to their end"]
    counts = words["counts"]
    if counts.get("complaints"):
        found.append(f"{counts['complaints']} complaints of good clients: {words['wrong'][0]}")
    found += [f"nothing came of: {name}" for name in MUST_COME if not counts.get(name)]
    return found


def summary(verdicts: Sequence[Verdict], words: dict[str, Any], log: Log) -> str:
    """Tables for people."""
    head = ("first", "last", "growth", "certain", "allowed")
    lines = [f"{'figure':42} {' '.join(f'{name:>9}' for name in head)}"]
    for one in verdicts:
        allowed = one.series.allowance
        shown = "-" if allowed is None else f"{allowed:g}"
        lines.append(
            f"{one.series.name:42} {one.first:9.1f} {one.last:9.1f} {one.growth:9.1f}"
            f" {one.least:9.1f} {shown:>9} {one.series.unit}"
        )
    lines += ["", "clients:"]
    lines += [f"  {name}: {n}" for name, n in sorted(words.get("counts", {}).items())]
    lines += [f"  wrong: {text}" for text in words.get("wrong", [])[:SHOWN_MAX]]
    lines += ["", "store:", *(f"  {name}: {n}" for name, n in log.store.items())]
    for name, counter in (
        ("connections closed because of", log.closed),
        ("the event loop was held by", log.held),
        ("warnings", log.warnings),
    ):
        lines += ["", f"{name}:"]
        lines += [f"  {n} x {what}" for what, n in counter.most_common(SHOWN_MAX)]
    lines += ["", *log.errors[:SHOWN_MAX]]
    return "\n".join(lines)
