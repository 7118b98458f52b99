"""The committed state of an export and the additions of a run, as values and as JSON.

Offsets: `first` and `last` are inclusive, `next` is the first offset that is not exported yet.
Must not know: Arrow, Spark, stores.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.errors import DamagedDataError, OptionError, PipelineError
from runtime.clock import SystemClock

VERSION: Final = 1
TABLE_VERSION: Final = 2
"""Of what `encode_committed` writes: one text for all partitions."""
_NOTHING: Final = "-"
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for a partition without a value: of times before the year 1 or after 9999."""


class OvertakenError(PipelineError):
    """Another export of the same target began or committed meanwhile; nothing was committed."""


class FilesMissingError(PipelineError):
    """Files that tasks wrote are not in the target, or not whole; nothing was committed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The settings that must stay the same from run to run, or the rows would not fit together.

    Attributes:
        topic_id: in hexadecimal; a topic that is deleted and made again has another.
        isolation: name of the level.
        value: how values are stored: `bytes`, or `json ` and their schema.
    """

    topic: str
    topic_id: str
    isolation: str
    value: str

    def check(self, committed: "Identity", target: str) -> None:
        """Refuse to mix.

        Raises:
            OptionError: names the difference.
        """
        for name in ("topic", "topic_id", "isolation", "value"):
            ours, theirs = getattr(self, name), getattr(committed, name)
            if ours != theirs:
                raise OptionError(
                    f"{target} holds an export with {name}={theirs[:200]}, this one has"
                    f" {name}={ours[:200]}: export to another place"
                )


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed contents of a target.

    Attributes:
        offsets: the next offset of each partition; one that is absent was never exported.
        epochs: leader epoch of the record before that offset, where it was known. A log that has
            another one there is not the log that was exported.
    """

    identity: Identity
    offsets: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file: rows of one partition and one day.

    Attributes:
        staged: where a task wrote it, below the run's own directory.
        name: its place among committed files, below the target.
        day: of the records' timestamps in UTC, as `2026-11-23`; or `NO_DAY`.
        rows: how many; never 0.
        unparsed: of these, values that did not parse and were kept as bytes.
        first, last: smallest and largest offset.
        from_us, to_us: smallest and largest timestamp, microseconds since the epoch.
    """

    staged: str
    name: str
    partition: int
    day: str
    rows: int
    size_bytes: int
    unparsed: int
    first: int
    last: int
    from_us: int
    to_us: int


def not_there(files: Sequence[DataFile], staged: Mapping[str, int], target: str) -> str | None:
    """The reason why the files of a commit cannot be used; None: all are there.

    Args:
        files: to be committed.
        staged: sizes of what lies in the run's directory, by name.
        target: what a user calls it.
    """
    missing = [one.staged for one in files if staged.get(one.staged) != one.size_bytes]
    if not missing:
        return None
    return (
        f"{target}: {len(missing)} of {len(files)} files that tasks wrote are not there or not"
        f" whole, first {missing[0]}: see that all machines write to the same place, and that"
        " nothing else removes files there; then run the export again"
    )


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a directory's log; entries are numbered from 1 without gaps.

    A run may only commit under the number that follows its own beginning, so any later beginning
    ends its right to commit.

    Attributes:
        files: of a commit; None for the beginning of a run.
        committed: what the target holds with this entry and all before it.
    """

    number: int
    run: str
    committed: Committed
    files: tuple[DataFile, ...] | None = None

    def encode(self) -> bytes:
        """The entry's JSON."""
        body = {
            "version": VERSION,
            "kind": "begin" if self.files is None else "commit",
            "number": self.number,
            "run": self.run,
            **encoded(self.committed),
            "files": [asdict(one) for one in self.files or ()],
        }
        return json.dumps(body, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> "Record":
        """Read an entry back.

        Raises:
            DamagedDataError: it is no such entry, or of a later version.
        """
        body = _parsed(data, where, VERSION)
        try:
            files = tuple(DataFile(**one) for one in body["files"])
            return cls(
                int(body["number"]),
                str(body["run"]),
                _committed(body),
                files if body["kind"] == "commit" else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedDataError(f"{where} is no entry of an export's log: {error!r}") from error


def encoded(committed: Committed) -> dict[str, Any]:
    """The fields as JSON values."""
    return {
        "identity": asdict(committed.identity),
        "offsets": _texts(committed.offsets),
        "epochs": _texts(committed.epochs),
    }


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): number for partition, number in sorted(numbers.items())}


def _numbers(texts: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(number) for partition, number in texts.items()}


def encode_committed(committed: Committed) -> str:
    """Encode as JSON that stays short with many partitions: each snapshot of a table has it.

    `partitions` has a word for partition 0, 1, 2 and so on: the next offset, then `@` and the
    leader epoch before it where that was known; `-` where nothing was exported.
    """
    count = max(committed.offsets, default=-1) + 1
    body = {
        "version": TABLE_VERSION,
        "identity": asdict(committed.identity),
        "partitions": " ".join(_word(committed, partition) for partition in range(count)),
    }
    return json.dumps(body)


def _word(committed: Committed, partition: int) -> str:
    if partition not in committed.offsets:
        return _NOTHING
    epoch = committed.epochs.get(partition)
    return f"{committed.offsets[partition]}" + ("" if epoch is None else f"@{epoch}")


def decode_committed(text: str | bytes, where: str) -> Committed:
    """Read it back.

    Raises:
        DamagedDataError: it is nothing of the kind, or of another version.
    """
    body = _parsed(text, where, TABLE_VERSION)
    offsets: dict[int, int] = {}
    epochs: dict[int, int] = {}
    try:
        for partition, word in enumerate(body["partitions"].split()):
            if word != _NOTHING:
                offset, _, epoch = word.partition("@")
                offsets[partition] = int(offset)
                if epoch:
                    epochs[partition] = int(epoch)
        return Committed(Identity(**body["identity"]), offsets, epochs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedDataError(f"{where} holds no offsets of an export: {error!r}") from error


def _parsed(data: str | bytes, where: str, version: int) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as error:
        raise DamagedDataError(f"{where} is no JSON: {error}") from error
    if not isinstance(body, dict) or body.get("version") != version:
        raise DamagedDataError(
            f"{where} is not of version {version}: written by another version of Tidemark, or by"
            " something else"
        )
    return body


def _committed(body: Mapping[str, Any]) -> Committed:
    epochs = body.get("epochs", {})  # not in what 0.1 wrote
    return Committed(Identity(**body["identity"]), _numbers(body["offsets"]), _numbers(epochs))


def new_run_name() -> str:
    """A name such as `20261123T065900-5f3a9c1d2b4e`."""
    began = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
    return f"{began:%Y%m%dT%H%M%S}-{secrets.token_hex(6)}"
