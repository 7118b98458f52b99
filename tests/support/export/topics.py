"""A toy export of a toy topic: all that is real in it is the protocol of commits."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.jobs.ledger import Ledger
from pipeline.jobs.values import Committed, DataFile, Identity, OvertakenError

IDENTITY = Identity("orders", "00" * 16, "read_uncommitted", "bytes")
MakeLedger = Callable[[], Ledger]


@dataclass
class ToyTopic:
    """Next offset of each partition, so far."""

    ends: dict[int, int] = field(default_factory=lambda: {0: 3, 1: 2})

    def grow(self) -> None:
        for partition in self.ends:
            self.ends[partition] += 2

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted((p, offset) for p, end in self.ends.items() for offset in range(end))


def export_once(ledger: Ledger, topic: ToyTopic, run: str) -> None:
    """One run, as the driver makes it: file by file, then the commit.

    It looks at the topic before it begins: another run may have come further, and no commit takes
    offsets back.
    """
    ends = dict(topic.ends)
    committed = ledger.begin(run, IDENTITY)
    files = []
    for partition, end in sorted(ends.items()):
        first = committed.offsets.get(partition, 0)
        ends[partition] = max(first, end)
        if first < end:
            files.append(_write(ledger, run, partition, range(first, end)))
    try:
        ledger.commit(run, Committed(IDENTITY, ends), files)
    except OvertakenError:
        ledger.abandon(run)
        raise


def _write(ledger: Ledger, run: str, partition: int, offsets: range) -> DataFile:
    name = f"{partition}-{offsets.start}-{run}"
    data = "\n".join(f"{partition} {offset}" for offset in offsets).encode()
    staged = f"{name}{ledger.suffix}"
    with ledger.place.writing(f"{ledger.staging(run)}/{staged}") as file:
        file.write(data)
    with ledger.place.writing(
        f"{ledger.staging(run)}/{name}-of-a-dead-task{ledger.suffix}"
    ) as file:
        file.write(data)
    final = f"day=2026-11-23/{name}.parquet"
    rows = len(offsets)
    first, last = offsets.start, offsets.stop - 1
    return DataFile(staged, final, partition, "2026-11-23", rows, len(data), 0, first, last, 0, 0)


def rows_of(data: bytes) -> list[tuple[int, int]]:
    """Rows of a file."""
    lines = (line.split() for line in data.decode().splitlines())
    return [(int(partition), int(offset)) for partition, offset in lines]
