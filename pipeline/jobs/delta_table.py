"""A Delta table that exports are appended to, through deltalake.

Delta's log says which commit was the last: versions of two application transactions, the epoch
and the run. The offsets are in the file that these two name, written before the commit. Two
commits that both raise one transaction conflict by Delta's own rule.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from pipeline.errors import (
    DamagedDataError,
    MissingPackageError,
    OptionError,
    PipelineError,
    StoreUnreachableError,
)
from pipeline.jobs.place import Place
from pipeline.jobs.table_ledger import CommitConflictError, Seen, Table
from pipeline.jobs.values import NO_DAY, Committed, DataFile, decode_committed, encode_committed
from runtime.override import override
from runtime.version import install_command

DIRECTORY: Final = "offsets"

DAY: Final = "day"
_RUN: Final = "tidemark.run"
_LOOK_BACK: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OffsetFiles:
    """Files of the exports of one topic to one table.

    A file is written before the commit that names it (by an epoch and a run) and never again;
    one that no commit names means nothing. Must not know: what kind of table it is.
    """

    def __init__(self, place: Place) -> None:
        """Take a place of their own, which nothing cleans up."""
        self._place = place

    def write(self, epoch: int, mark: str, committed: Committed) -> None:
        """Make the file of a commit; it is durable when this returns.

        The same file may be there from an earlier attempt.

        Raises:
            PipelineError: it is there with other offsets.
        """
        path, data = _path(epoch, mark), encode_committed(committed).encode()
        if not self._place.create(path, data) and self._place.read(path) != data:
            raise PipelineError(
                f"{self._place.url}/{path} has other offsets than this run: the table was rolled"
                " back while it ran; run the export again, which writes another file"
            )

    def read(self, epoch: int, mark: str) -> Committed:
        """The result of a commit.

        Raises:
            DamagedDataError: its file is not there, or damaged.
        """
        path = _path(epoch, mark)
        where = f"{self._place.url}/{path}"
        try:
            return decode_committed(self._place.read(path), where)
        except FileNotFoundError:
            raise DamagedDataError(
                f"{where} is not there, so what is exported is not known: bring the file back,"
                " or restore the table to a version whose file is there, or export to another table"
            ) from None


def _path(epoch: int, mark: str) -> str:
    return f"{DIRECTORY}/{epoch:020}-{mark}.json"


@dataclass(frozen=True, slots=True)
class _Last:
    """The last commit or fence up to some version of the table.

    Attributes:
        mark: of its run.
    """

    epoch: int
    mark: str


class DeltaLakeTable(Table):
    """A Delta Lake table; each export of an epoch is one transaction of its log."""

    def __init__(
        self, url: str, topic: str, schema: pa.Schema, place: Place, offsets: OffsetFiles
    ) -> None:
        """Take a table that exists.

        Args:
            url: of the table.
            topic: whose exports are meant.
            schema: of the table.
            place: below the table's directory; its files are named relative to the table.
            offsets: of this topic, at `offsets_name`.
        """
        self._url, self._topic, self._schema, self._place = url, topic, schema, place
        self._offsets = offsets
        self._app = f"tidemark/{topic}"

    @property
    @override
    def name(self) -> str:
        return self._url

    def mark(self, run: str) -> str:
        """A number, as a transaction has nothing else."""
        return str(int.from_bytes(hashlib.sha256(run.encode()).digest()[:6], "big"))

    @override
    def look(self) -> Seen:
        with _translated(self._url):
            return self._seen(self._load())

    def append(
        self, seen: Seen, run: str, committed: Committed, files: Sequence[tuple[str, DataFile]]
    ) -> None:
        """Two commits of one epoch both write its transaction, so one fails."""
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import DeltaError

        with _translated(self._url):
            table = self._load()
            if self._seen(table) != seen:
                raise CommitConflictError(f"{self._url}: another export was faster")
            _check_columns(self._url, table, self._schema)
        mark = self.mark(run)
        self._offsets.write(seen.epoch + 1, mark, committed)
        versions = {"epoch": seen.epoch + 1, "run": int(mark)}
        try:
            table.create_write_transaction(
                [self._action(address, file) for address, file in files],
                mode="append",
                schema=Schema.from_arrow(self._schema),
                partition_by=[DAY],
                commit_properties=CommitProperties(
                    custom_metadata={_RUN: run},
                    app_transactions=[
                        Transaction(f"{self._app}/{name}", version)
                        for name, version in versions.items()
                    ],
                ),
            )
        except (DeltaError, OSError) as error:
            raise CommitConflictError(f"{self._url}: the commit failed: {error}") from error

    def named_files(self, after: int) -> set[str]:
        """All of the newest version, whose log is read in any case.

        Files that older versions alone name are removed by a vacuum alone.
        A run's files are added once and may be rewritten later; then they are gone from the newest
        version while its marker cannot be there any more.
        """
        with _translated(self._url):
            return set(self._load().file_uris())

    def close(self) -> None:
        """Nothing is held."""

    def _load(self, version: int | None = None) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._url, version=version)

    def _seen(self, table: Any) -> Seen:
        last = self._last(table)
        if last is None:
            return Seen(None, 0, "")
        counts = self._that_counts(table, last)
        committed = None if counts is None else self._offsets.read(counts.epoch, counts.mark)
        return Seen(committed, last.epoch, last.mark)

    def _last(self, table: Any) -> _Last | None:
        epoch = table.transaction_version(f"{self._app}/epoch")
        if epoch is None:
            return None
        return _Last(epoch, str(table.transaction_version(f"{self._app}/run")))

    def _that_counts(self, table: Any, last: _Last) -> _Last | None:
        """The commit whose rows are the table's: an earlier one where it was restored afterwards.

        Delta restores files alone: transactions stay as they were. None: it was restored to a
        version before all exports.

        Raises:
            DamagedDataError: the log does not say to which version.
            StoreUnreachableError: that version cannot be read any more.
        """
        found, newest = last, table.version()
        for entry in _newest_first(table):
            if entry["version"] > newest:
                continue
            if self.mark(str(entry.get(_RUN))) == found.mark:
                break
            if entry.get("operation") == "RESTORE":
                version = str(entry.get("operationParameters", {}).get("version"))
                if not version.isdecimal():
                    raise DamagedDataError(
                        f"{self._url}: it was restored, and its log does not say to which version,"
                        " so what is exported is not known: restore it by a version's number"
                    )
                newest = int(version)
                earlier = self._last(self._load(newest))
                if earlier is None:
                    return None
                found = earlier
        return found

    def _action(self, address: str, file: DataFile) -> Any:
        from deltalake.transaction import AddAction

        below = address.removeprefix(self._place.location("")).lstrip("/")
        return AddAction(
            path=f"{place_name(self._topic)}/{below}",
            size=file.size_bytes,
            partition_values={DAY: None if file.day == NO_DAY else file.day},
            modification_time=max(file.to_us // 1000, 0),
            data_change=True,
            stats=json.dumps(_stats(file)),
        )


def _newest_first(table: Any) -> Iterator[dict[str, Any]]:
    """Commits; nearly always one of the first is ours, and older ones need not be read."""
    newest = table.history(_LOOK_BACK)
    yield from newest
    if len(newest) == _LOOK_BACK:
        yield from table.history()[_LOOK_BACK:]


def place_name(topic: str) -> str:
    """Directory of a topic's exports, relative to the table's."""
    return f"tidemark/{topic}"


def offsets_name(topic: str) -> str:
    """Directory of a topic's offsets, relative to the table's.

    A full vacuum of deltalake removes all that the table does not name, unless the path begins
    with `_`; what is below `place_name` does not.
    """
    return f"_tidemark/{topic}"


def make_delta(url: str, schema: pa.Schema) -> pa.Schema:
    """Make a table unless there is one; gives its schema, with the column `day`.

    Raises:
        MissingPackageError: deltalake is not installed.
        OptionError: there is one with other columns.
        StoreUnreachableError: the store failed or refused.
    """
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise MissingPackageError(
            f"--delta needs deltalake ({error.name}): {install_command('delta')}"
        ) from error
    whole = schema.append(pa.field(DAY, pa.date32()))
    with _translated(url):
        DeltaTable.create(url, whole, mode="ignore", partition_by=[DAY])
        _check_columns(url, DeltaTable(url), whole)
    return whole


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Tell errors of deltalake in one line.

    Raises:
        StoreUnreachableError: in their place.
    """
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        said = " ".join(str(error).split())[:500]
        raise StoreUnreachableError(f"{url} cannot be read or written: {said}") from error


def _check_columns(url: str, table: Any, schema: pa.Schema) -> None:
    """Refuse what deltalake would not: files whose rows the table's readers could not read.

    Raises:
        OptionError: names the columns.
    """
    from deltalake import Schema

    kinds = {field.name: field.type for field in table.schema().fields}
    ours = {field.name: field for field in Schema.from_arrow(schema).fields}
    wrong = [
        f"{name} is {kinds.get(name, 'not there')}, the files have {field.type}"
        for name, field in ours.items()
        if kinds.get(name) != field.type
    ] + [
        f"{field.name} must not be null, the files may have none"
        for field in table.schema().fields
        if not field.nullable and (field.name not in ours or ours[field.name].nullable)
    ]
    about = table.metadata()
    if about.partition_columns != [DAY]:
        wrong.append(f"it is partitioned by {about.partition_columns}, not by {DAY}")
    if about.configuration.get("delta.columnMapping.mode", "none") != "none":
        wrong.append("its columns have other names in its files (column mapping)")
    if wrong:
        raise OptionError(
            f"--delta: the table {url} does not fit: {'; '.join(wrong)[:600]}: export to a table"
            " of its own"
        )


def _stats(file: DataFile) -> dict[str, Any]:
    """Delta's statistics; it keeps milliseconds, so the largest time is rounded up."""
    low: dict[str, Any] = {"partition": file.partition, "offset": file.first}
    high: dict[str, Any] = {"partition": file.partition, "offset": file.last}
    try:
        low["timestamp"] = _iso(file.from_us // 1000)
        high["timestamp"] = _iso(-(-file.to_us // 1000))
    except OverflowError:  # a year that no calendar has: no statistics of it
        low.pop("timestamp", None)
    nulls = {"partition": 0, "offset": 0, "timestamp": 0}
    return {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _iso(at_ms: int) -> str:
    at = _EPOCH + timedelta(milliseconds=at_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
