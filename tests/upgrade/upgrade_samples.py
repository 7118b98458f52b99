"""Data directories of earlier days: what is in them, how they are made, packed and unpacked.

An archive holds a whole broker's directory (log directory and remote store). Its name says what it
is: `<capability>-kraft<version>-<clean|killed>.tar.xz`.
"""

import tarfile
from pathlib import Path

from harness_broker import BrokerProcess, until
from harness_clients import Read, Sent

DATA = Path(__file__).parent / "data"
PLAIN, TIERED = "plain", "tiered"
DELETED_BELOW = 30  # of partition 0 of PLAIN
ROUNDS, RECORDS = 3, 120


def records_of(topic: str, partition: int) -> list[Sent]:
    """All that was ever written to one partition."""
    return [
        (b"%d" % n, f"{topic}-{partition} {n} ".encode() + bytes(range(n % 200)))
        for n in range(ROUNDS * RECORDS)
    ]


def expected(topic: str, partition: int) -> list[Read]:
    """All that must be read from one partition."""
    first = DELETED_BELOW if (topic, partition) == (PLAIN, 0) else 0
    sent = records_of(topic, partition)
    return [(n, key, value) for n, (key, value) in enumerate(sent) if n >= first]


def broker_at(directory: Path, *, kraft_version: int) -> BrokerProcess:
    """A tiering broker on such a directory, with segments that roll within a second."""
    broker = BrokerProcess(directory, tiered=True)
    broker.settings = {
        "log.index.size.max.bytes": "4096",
        "tidemark.remote.copy.max.ms": "1000",
        "offsets.topic.num.partitions": "1",
    }
    if kraft_version == 1:
        broker.settings |= {
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{broker.controller_port}",
        }
    return broker


def pack(directory: Path, archive: Path) -> None:
    """Pack logs and remote store; the zeros of preallocated indexes all but vanish."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for name in ("logs", "remote-tier"):
            tar.add(directory / name, name, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name == "LOG":
        return None  # RocksDB's chatter about the machine it ran on
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(archive: Path, directory: Path) -> None:
    """Put a broker's directory back."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")


def wait_until_old_segments_are_remote_only(broker: BrokerProcess) -> None:
    until(
        lambda: (
            len(broker.remote_segments(TIERED)) >= ROUNDS
            and broker.local_segments(TIERED)[0] >= max(broker.remote_segments(TIERED))
        ),
        "all segments but the last are remote, and local no more",
    )
