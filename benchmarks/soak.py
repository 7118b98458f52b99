"""A broker under 200 clients of all kinds for as long as you like: does anything grow?

    python -m benchmarks.soak --minutes 60 [--seed 1] [--plant memory] [--json FILE] [--data DIR]

One broker has a tier whose store fails now and then, at random. The clients use librdkafka or plain
frames. Some are good, slow to read, slow to write, silent, flooding, sending nonsense, or idle.
Others read old offsets, join groups, or create and delete topics (benchmarks/soak_parts/load.py
lists them). Every few seconds the figures of the processes and of the broker's page are sampled;
progress is shown, also of the end.

At the end every figure that must be flat is validated by the rule of
benchmarks/soak_parts/validator.py. No acknowledged record may be lost or wrong, and no good client
may be refused. The log may have no traceback, and no ERROR except the store's. When the clients
have left, health must come back, and their connections and descriptors must go. SIGTERM must end
the broker with 0. The exit code is 0 if all of this held, else 1, and the last lines are the
reasons. With `--plant` the store or the clients leak, as a test that leaks are found. With `--data`
the data and the log stay there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import brokers
from benchmarks.soak_parts.ending import NO_PAGE, Ending, shown
from benchmarks.soak_parts.report import Log, findings_of_load, last_words, summary
from benchmarks.soak_parts.sampling import Samples, health
from benchmarks.soak_parts.store import LEAKS
from benchmarks.soak_parts.validator import verdict

SAMPLE_S = 2.5
SHOW_S = 30
START_S = 60
CALM_S = 90
"""So long after the last client health is green; then so long until what clients held is free."""
CLIENTS_END_S = 150
"""They have bounds of their own for each step, and name what came to none (load.py, lanes.py)."""
SAMPLES_MIN, MORE_S = 12, 45
"""A machine that is too busy for so many after the warm-up has some more time for them."""
WORDLESS_S = 90
"""Clients that say nothing for so long hang."""
STOP_S = 45
STAGE_S = 2
PRODUCE_MS_MORE = 15
CONNECTIONS_MORE = 4
"""Than before the first client: the tier's own come and go."""
SETTINGS = {
    "remote.log.storage.manager.class.name": "benchmarks.soak_parts.store:FlakyStorageManager",
    "tidemark.remote.chunk.cache.bytes": str(6 << 20),
    "remote.log.reader.threads": "4",
    "remote.log.manager.copier.thread.pool.size": "3",
    "remote.log.manager.expiration.thread.pool.size": "3",
    "remote.log.index.file.cache.total.size.bytes": str(4 << 20),
    "tidemark.remote.copy.max.ms": "30000",
    "tidemark.remote.delete.grace.ms": "2000",
    "tidemark.connection.write.timeout.ms": "20000",
    "tidemark.request.receive.timeout.ms": "15000",
    "connections.max.idle.ms": "40000",
    "producer.id.expiration.ms": "20000",
    "producer.id.expiration.check.interval.ms": "5000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "offsets.topic.num.partitions": "4",
    "log.segment.delete.delay.ms": "2000",
    "remote.log.index.file.cache.ttl.ms": "20000",
}
"""Small caches that keep entries for seconds, not for hours, so that the warm-up is short."""


class Soak:
    """One run.

    Attributes:
        findings: Why it failed.
    """

    def __init__(self, options: argparse.Namespace, data: Path) -> None:
        self.findings: list[str] = []
        self._options, self._data = options, data
        self._http = f"127.0.0.1:{brokers.free_port()}"
        self._words = data / "clients.jsonl"
        self._ending = Ending()
        self._watched_s = options.minutes * 60

    def run(self) -> None:
        leak = self._options.plant if self._options.plant in LEAKS else "none"
        given = {"rsm.config.seed": str(self._options.seed), "rsm.config.leak": leak}
        given["tidemark.http.listener"] = self._http
        settings = {**SETTINGS, **given}
        config, bootstrap = brokers.formatted(self._data, tiered=True, settings=settings)
        with brokers.launched(config) as process:
            brokers.wait_answering(bootstrap, process)
            samples = Samples(process.pid, self._http, self._data)
            self._wait_green("health is green before the first client", START_S)
            samples.take()
            at_rest = samples.latest("open connections")
            with self._clients(bootstrap, process.pid) as clients:
                self._watch(samples, process, clients)
            self.findings += findings_of_load(last_words(self._words), clients.returncode)
            if process.poll() is None:
                self._see_that_it_calms_down(samples, at_rest)
            process.terminate()
            self._ending.wait(
                "the broker has ended",
                lambda: process.poll() is not None,
                STOP_S,
                lambda: str(health(self._http, STAGE_S)["stage"]),
            )
        if process.returncode:
            self.findings.append(f"the broker ended with {process.returncode}")
        self._validate(samples)

    @contextmanager
    def _clients(self, bootstrap: str, pid: int) -> Iterator["subprocess.Popen[bytes]"]:
        command = [sys.executable, "-m", "benchmarks.soak_parts.load", bootstrap]
        command += [str(pid), str(self._options.seed)]
        command += ["--plant-connections"] if self._options.plant == "connections" else []
        with self._words.open("wb") as words:
            clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=words)
            try:
                yield clients
                assert clients.stdin is not None
                clients.stdin.close()  # they end when their input does
                self._ending.wait(
                    "the clients have ended",
                    lambda: clients.poll() is not None,
                    CLIENTS_END_S,
                    lambda: str(last_words(self._words).get("ending", "they hear of it")),
                )
            finally:
                clients.kill()
                clients.wait()

    def _watch(
        self,
        samples: Samples,
        process: "subprocess.Popen[bytes]",
        clients: "subprocess.Popen[bytes]",
    ) -> None:
        began, shown, seconds = time.monotonic(), 0.0, self._watched_s

        def lacks_samples() -> bool:
            return now < seconds + MORE_S and samples.count_after(seconds / 3) < SAMPLES_MIN

        while (now := time.monotonic() - began) < seconds or lacks_samples():
            self._watched_s = max(seconds, now)
            if process.poll() is not None or clients.poll() is not None:
                self.findings.append(f"somebody ended after {now:.0f} s")
                return
            if time.time() - self._words.stat().st_mtime > WORDLESS_S:
                self.findings.append(f"the clients say nothing any more after {now:.0f} s")
                return
            time.sleep(SAMPLE_S)
            try:
                samples.take()
            except NO_PAGE as error:  # a page that is late, or a broker that has just ended
                self.findings.append(f"no sample after {now:.0f} s: {error}")
                continue
            words = last_words(self._words)
            told = words.get("latencies_ms", {})
            if "produce" in told:
                samples.add("time of small produces", told["produce"]["p50"], "ms", PRODUCE_MS_MORE)
                for name in ("p50", "p99"):
                    value = told["produce by the clock"][name]
                    samples.add(f"{name} of small produces by the clock", value, "ms", None)
            if now - shown >= SHOW_S:
                shown = now
                self._show(samples, words)

    def _show(self, samples: Samples, words: dict[str, dict[str, int]]) -> None:
        figures = [
            f"{name} {samples.latest(f'resident memory of the {name}'):.0f} MiB, "
            f"{samples.latest(f'descriptors of the {name}'):.0f} fds, "
            f"{samples.latest(f'threads of the {name}'):.0f} threads, "
            f"{samples.latest(f'CPU of the {name}'):.0f} % CPU; "
            for name in ("broker", "tier")
        ]
        counts = words.get("counts", {})
        shown(
            f"{samples.elapsed_s():5.0f} s: {''.join(figures)}"
            f"{counts.get('topic_maker topics', 0)} topics, "
            f"p99 {samples.latest('p99 of small produces by the clock'):.0f} ms, "
            f"{counts.get('complaints', 0)} complaints"
        )

    def _see_that_it_calms_down(self, samples: Samples, at_rest: float) -> None:
        def are_gone() -> bool:
            samples.take()
            return samples.latest("open connections") <= at_rest + CONNECTIONS_MORE

        self._wait_green("health is green after the last client", CALM_S)
        self._ending.wait(
            f"the connections of clients are gone (but for {at_rest + CONNECTIONS_MORE:.0f})",
            are_gone,
            CALM_S,
            lambda: f"{samples.latest('open connections'):.0f} are open",
        )

    def _wait_green(self, awaited: str, deadline_s: float) -> None:
        last: dict[str, Any] = {}

        def is_green() -> bool:
            last.update(health(self._http))
            return bool(last["status"] == "green")

        self._ending.wait(awaited, is_green, deadline_s, lambda: str(last.get("reasons"))[:300])

    def _validate(self, samples: Samples) -> None:
        verdicts = [verdict(series) for series in samples.of_the_run(self._watched_s)]
        log = Log(self._data / "server.log")
        self.findings += self._ending.findings
        self.findings += [one.finding for one in verdicts if one.finding] + log.findings()
        print(summary(verdicts, last_words(self._words), log))
        if self._options.json:
            found = {
                "findings": self.findings,
                "clients": last_words(self._words),
                "store": log.store,
                "steps": self._ending.took_s,
                "series": {one.series.name: one.series.samples for one in verdicts},
            }
            self._options.json.write_text(json.dumps(found, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", default="none", choices=[*LEAKS, "connections"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    # The broker's tier loads the store by its name, as it loads a user's plugin.
    path = [str(brokers.ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(one for one in path if one)
    with tempfile.TemporaryDirectory(prefix="tidemark-soak-") as scratch:
        soak = Soak(options, options.data or Path(scratch) / "data")
        soak.run()
    print("\n".join(["", *soak.findings] if soak.findings else ["", "all of it is flat"]))
    print(f"soak: {len(soak.findings)} findings in {options.minutes:g} minutes")
    sys.exit(bool(soak.findings))


if __name__ == "__main__":
    main()
