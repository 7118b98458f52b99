"""What holds after every bad input: the broker is well, lean, silent, and has lost nothing."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch, memory_bytes
from tests.support.brokers.files import files_below
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient, create_topic, fetch, produce

GROWTH_BYTES_MAX = 50_000_000
LOOP_HELD_MS_MAX = 1_000
"""The event loop may be held so long at once, without the time that the machine kept: others wait
for that. The next bound of the histogram."""
THREADS_MAX = 40
"""The pools start their threads when they are first needed; together they have less than these."""
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x9b]")
PARKED = (
    "kafka_server_DelayedOperationPurgatory_PurgatorySize",
    "kafka_server_group_coordinator_metrics_parked_requests",
)
TASKS = "tidemark_event_loop_tasks"


@dataclass(frozen=True, slots=True)
class Readings:
    """A broker's use of its machine at a moment."""

    memory_bytes: int
    descriptors: int
    tasks: int
    parked: int
    held: int
    files: frozenset[Path]

    @classmethod
    def of(cls, broker: BrokerProcess) -> "Readings":
        """Look now."""
        page = broker.http("/metrics")[1]
        return cls(
            memory_bytes=memory_bytes(broker.pid),
            descriptors=open_besides_logs(broker),
            tasks=int(sample(page, TASKS)),
            parked=int(sum(sample(page, name) for name in PARKED)),
            held=held_count(page),
            files=frozenset(filter(loose, files_below(broker.directory))),
        )


def sample(page: str, name: str) -> float:
    """Sum of a metric's samples; a page without it is a failure."""
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if re.split(r"[{ ]", line, maxsplit=1)[0] == name
    ]
    assert values, f"no metric {name}"
    return sum(values)


def held_count(page: str) -> int:
    """How often the loop was held for longer than it may be."""
    found = dict(
        re.findall(r"^tidemark_event_loop_gap_ms_(count|bucket\S+) (\S+)$", page, re.MULTILINE)
    )
    if not found:  # there is no sample before the first gap
        assert sample(page, "tidemark_event_loop_longest_gap_ms") <= LOOP_HELD_MS_MAX
        return 0
    (within,) = (value for name, value in found.items() if f'le="{LOOP_HELD_MS_MAX}"' in name)
    return int(found["count"]) - int(within)


def open_besides_logs(broker: BrokerProcess) -> int:
    """Open descriptors, without the files of partitions: topics that a case makes keep theirs."""
    count = 0
    for entry in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        count += not (target.startswith(str(broker.log_directory)) and entry.exists())
    return count


def loose(path: Path) -> bool:
    """Whether a file may not be left behind by a request."""
    return path.suffix in {".tmp", ".part", ".swap"}


class WellAfterwards:
    """Validates one broker around one case; use it in a `with` block."""

    def __init__(self, broker: BrokerProcess, health_topic: str) -> None:
        """Look at it before; another connection stays open the while."""
        self._broker, self._topic = broker, health_topic
        self._bystander = RawClient(broker)
        fetch(self._bystander, health_topic)
        Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # the peak begins again
        self._before = Readings.of(broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bystander.socket.close()

    def validate(self, stage: Stage, *, peak_bytes: int) -> None:
        """Fail unless all is as it was before.

        Args:
            stage: of the case.
            peak_bytes: memory may have risen by so much meanwhile.
        """
        broker, before = self._broker, self._before
        peak = high_water_bytes(broker.pid) - before.memory_bytes
        assert peak < peak_bytes, f"memory rose by {peak}"
        with RawClient(broker) as fresh:
            offset = produce(fresh, self._topic, batch(b"still here")).base_offset
            assert b"still here" in bytes(fetch(fresh, self._topic, offset).records)
        assert fetch(self._bystander, self._topic, offset).error_code == 0
        self._bystander.socket.close()
        after = until(self._settled, f"all is as before: {before}", deadline_s=20)
        growth = after.memory_bytes - before.memory_bytes
        assert growth < GROWTH_BYTES_MAX, f"memory has grown by {growth}"
        assert after.held == before.held, f"the loop was held: {stage.log}"
        assert threads(broker.pid) <= THREADS_MAX
        assert "Traceback" not in stage.log, stage.log
        assert " ERROR " not in stage.log, stage.log
        assert not CONTROL.search(stage.log), repr(stage.log)
        assert not stage.unexpected_ends(), stage.unexpected_ends()

    def _settled(self) -> Readings | None:
        """What is used, once connections, tasks and waiting requests are no more than before."""
        now, before = Readings.of(self._broker), self._before
        is_settled = (
            now.descriptors < before.descriptors  # the bystander has gone
            and now.tasks <= before.tasks
            and now.parked <= before.parked
            and now.files <= before.files
        )
        return now if is_settled else None


def high_water_bytes(pid: int) -> int:
    """The most resident memory since `clear_refs` was written."""
    return _status(pid, "VmHWM") * 1024


def threads(pid: int) -> int:
    """How many threads a process has."""
    return _status(pid, "Threads")


def _status(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])


def make_health_topic(broker: BrokerProcess) -> str:
    """A topic that the validator uses, and all that its first use costs."""
    name = "health"
    with RawClient(broker) as client:
        create_topic(client, name)
        produce(client, name, batch(b"first"))
        fetch(client, name)
    return name
