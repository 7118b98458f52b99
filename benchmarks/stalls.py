"""How long others wait while one client, or the broker itself, does something large.

    python -m benchmarks.stalls [--only create,delete,...] [--scale 1.0] [--runs 1] [--json FILE]

Each line has a piece of work on a real broker, the longest wait of a bystander, and p99 and p99.9
of small produces with acks=1. The bystander sends ApiVersions on its own connection; during
recovery it reads the health page. Time in which broker or bystander could run and had no CPU is
excluded; the times of the clock are in brackets. `took` is the time until the answer of the
work. The last column is the broker's own figure of the event loop. The worst of `--runs` counts.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks import brokers
from benchmarks.stall_probe import Client

SETTLE_S = 1.0
QUIET_S = 10.5
"""For so long the broker does not name a callback again."""
HELD = re.compile(r"(?:was held|held the event loop): held_ms=(\d+) callback=(\S+) at=(\S+)")
PROBED = "probed"


@dataclass
class Figures:
    """One scenario of one run, milliseconds: (corrected, raw)."""

    name: str
    longest: tuple[float, float]
    p99: tuple[float, float]
    p999: tuple[float, float]
    took_ms: float
    held_by: str

    def worst(self, other: "Figures") -> "Figures":
        """The larger of each figure."""
        return Figures(
            self.name,
            max(self.longest, other.longest),
            max(self.p99, other.p99),
            max(self.p999, other.p999),
            max(self.took_ms, other.took_ms),
            (self if self.longest >= other.longest else other).held_by,
        )


class Window:
    """While a piece of work runs, and a little after."""

    def __init__(self, name: str, bystander: str) -> None:
        self.name, self.bystander = name, bystander
        self.began = self.worked = self.ended = 0.0
        self.held_by = ""


class Watched:
    """A broker with bystanders."""

    def __init__(self, config: Path, bootstrap: str, http: str) -> None:
        self.config, self.bootstrap, self.http = config, bootstrap, http
        self.data = config.parent
        self._log = self.data / "server.log"
        self.windows: list[Window] = []
        self.figures: list[Figures] = []
        self.pid = 0

    @contextmanager
    def running(self, *, topic: str = "", wait: bool = True) -> Iterator["subprocess.Popen[bytes]"]:
        """Start it, with bystanders; a topic is produced to once it is there."""
        with brokers.launched(self.config) as process:
            self.pid = process.pid
            if wait:
                brokers.wait_answering(self.bootstrap, process)
            command = [sys.executable, "-m", "benchmarks.stall_probe"]
            command += [self.bootstrap, self.http, str(process.pid), topic]
            probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                yield process
            finally:
                text, _ = probe.communicate()
                self._validate(json.loads(text))

    @contextmanager
    def window(
        self, name: str, bystander: str = "versions", *, is_start: bool = False
    ) -> Iterator[None]:
        """Measure the work of the block, or the start of the broker."""
        if not is_start:
            self._wait_until_it_speaks()
            time.sleep(0.3)
        window = Window(name, bystander)
        before = self._log.stat().st_size
        window.began = time.monotonic()
        yield
        window.worked = time.monotonic()
        time.sleep(SETTLE_S)
        window.ended = time.monotonic()
        with self._log.open() as log:
            log.seek(before)
            window.held_by = held_by(log.read())
        self.windows.append(window)
        print(f"  {name}: {window.worked - window.began:.2f} s", file=sys.stderr, flush=True)

    def _wait_until_it_speaks(self) -> None:
        """A callback that was just named is not named again for a while."""
        lines = [line for line in self._log.read_text().splitlines() if HELD.search(line)]
        if lines:
            said = datetime.strptime(lines[-1].lstrip("[")[:19], "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007
            time.sleep(max(0.0, QUIET_S - (datetime.now() - said).total_seconds()))  # noqa: DTZ005

    def _validate(self, samples: dict[str, list[tuple[float, float, float]]]) -> None:
        for window in self.windows:
            within = {
                kind: [
                    (corrected, waited)
                    for began, waited, corrected in all_of_kind
                    if began < window.ended and began + waited / 1_000 > window.began
                ]
                for kind, all_of_kind in samples.items()
            }
            produces = within.get("produce", [])
            self.figures.append(
                Figures(
                    window.name,
                    max(within[window.bystander], default=(0.0, 0.0)),
                    (
                        quantile([c for c, _ in produces], 0.99),
                        quantile([w for _, w in produces], 0.99),
                    ),
                    (
                        quantile([c for c, _ in produces], 0.999),
                        quantile([w for _, w in produces], 0.999),
                    ),
                    (window.worked - window.began) * 1_000,
                    window.held_by,
                )
            )
        self.windows.clear()

    def client(self) -> Client:
        """A connection of one's own."""
        return Client(self.bootstrap)


def held_by(lines: str) -> str:
    """The longest time that each process says its event loop was held."""
    worst: dict[str, tuple[int, str]] = {}
    for line in lines.splitlines():
        if (found := HELD.search(line)) is not None:
            process = "tier: " if " tier runtime." in line else ""
            said = int(found[1]), f"{process}{found[1]} ms {found[2]} at {found[3]}"
            worst[process] = max(said, worst.get(process, said))
    return "; ".join(worst[process][1] for process in sorted(worst))


def quantile(values: list[float], share: float) -> float:
    if len(values) < 2:
        return 0.0
    return statistics.quantiles(values, n=1_000, method="inclusive")[round(share * 1_000) - 1]


def watched(data: Path, *, tiered: bool = False, **settings: str) -> Watched:
    """A broker that is formatted and not started; settings with `_` for dots."""
    http = f"127.0.0.1:{brokers.free_port()}"
    given = {name.replace("_", "."): text for name, text in settings.items()}
    config, bootstrap = brokers.formatted(
        data, tiered=tiered, settings={"tidemark.http.listener": http} | given
    )
    return Watched(config, bootstrap, http)


def show(figures: list[Figures]) -> None:
    print(f"{'scenario':34} {'longest wait':>18} {'p99':>16} {'p99.9':>16} {'took':>8}  held by")
    for one in figures:
        pairs = [f"{c:8.1f} ({w:.1f})" for c, w in (one.longest, one.p99, one.p999)]
        print(
            f"{one.name:34} {pairs[0]:>18} {pairs[1]:>16} {pairs[2]:>16} {one.took_ms:8.0f}"
            f"  {one.held_by}"
        )


def main() -> None:
    from benchmarks import stall_scenarios
    from benchmarks.stall_wide import page, wide_requests

    scenarios = {**stall_scenarios.SCENARIOS, "wide": wide_requests, "page": page}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help=f"some of {','.join(scenarios)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of partitions, segments, bytes")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else list(scenarios)
    worst: dict[str, Figures] = {}
    for name in chosen:
        scenario: Callable[[Path, float], list[Figures]] = scenarios[name]
        for _ in range(options.runs):
            print(name, file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
                for one in scenario(Path(scratch) / "data", options.scale):
                    worst[one.name] = one if one.name not in worst else worst[one.name].worst(one)
    show(list(worst.values()))
    if options.json:
        options.json.write_text(json.dumps([vars(one) for one in worst.values()], indent=1))


if __name__ == "__main__":
    main()
