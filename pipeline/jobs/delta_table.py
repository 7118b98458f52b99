"""A Delta table that exports are appended to, through deltalake.

What was exported are versions of application transactions, which Delta keeps with the commit: two
for each partition (its next offset and the leader epoch before it), one that counts commits. Two
commits that both raise one of them conflict by Delta's own rule.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from pipeline.errors import DamagedDataError, MissingPackageError, StoreUnreachableError
from pipeline.jobs.place import Place
from pipeline.jobs.table_ledger import CommitConflictError, Seen
from pipeline.jobs.values import Committed, DataFile, decode_committed, encode_committed

DAY: Final = "day"
_RUN: Final = "tidemark.run"
_LOOK_BACK: Final = 16
_IDENTITY: Final = "_tidemark/identity.json"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaLakeTable:
    """See `Table`."""

    def __init__(self, url: str, topic: str, schema: pa.Schema, place: Place) -> None:
        """Take a table that exists.

        Args:
            url: of the table.
            topic: whose exports are meant.
            schema: of the table.
            place: below the table's directory; its files are named relative to the table.
        """
        self._url, self._topic, self._schema, self._place = url, topic, schema, place
        self._app = f"tidemark/{topic}"

    @property
    def name(self) -> str:
        """See `Table`."""
        return self._url

    def mark(self, run: str) -> str:
        """See `Table`: a number, as a transaction has nothing else."""
        return str(int.from_bytes(hashlib.sha256(run.encode()).digest()[:6], "big"))

    def look(self) -> Seen:
        """See `Table`."""
        return self._seen(self._load())

    def append(
        self, seen: Seen, run: str, committed: Committed, files: Sequence[tuple[str, DataFile]]
    ) -> None:
        """See `Table`: two commits of one epoch both write its transaction, so one fails."""
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import DeltaError

        table = self._load()
        if self._seen(table).epoch != seen.epoch:
            raise CommitConflictError(f"{self._url}: another export was faster")
        identity = Committed(committed.identity)
        self._place.create(_IDENTITY, encode_committed(identity).encode())
        identity.identity.check(self._identity().identity, self._url)
        known = table.transaction_version(f"{self._app}/partitions") or 0
        count = max(known, max(committed.offsets, default=-1) + 1)
        versions = {
            "epoch": seen.epoch + 1,
            "run": int(self.mark(run)),
            "partitions": count,
            # One that is known and not committed stood in what a roll-back gave up.
            **{str(partition): committed.offsets.get(partition, -1) for partition in range(count)},
            **{f"{one}/epoch": committed.epochs.get(one, -1) for one in range(count)},
        }
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

    def named_files(self) -> set[str]:
        """See `Table`: those that older versions alone name are removed by nobody but a vacuum.

        A run's files are added once and may be rewritten later; then they are gone from the newest
        version while its marker cannot be there any more.
        """
        return set(self._load().file_uris())

    def close(self) -> None:
        """See `Table`: nothing is held."""

    def _load(self, version: int | None = None) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(self._url, version=version)
        except DeltaError as error:
            said = " ".join(str(error).split())[:500]
            raise StoreUnreachableError(f"{self._url} cannot be read: {said}") from error

    def _seen(self, table: Any) -> Seen:
        epoch = table.transaction_version(f"{self._app}/epoch")
        if epoch is None:
            return Seen(None, 0, "")
        there = self._restored(table)
        count = there.transaction_version(f"{self._app}/partitions") or 0
        offsets = self._numbers(there, {one: str(one) for one in range(count)})
        epochs = self._numbers(there, {one: f"{one}/epoch" for one in range(count)})
        found = Committed(self._identity().identity, offsets, epochs)
        return Seen(found, epoch, self._run_of(table))

    def _numbers(self, table: Any, names: dict[int, str]) -> dict[int, int]:
        """Versions of these transactions; those that are absent or -1 are left out."""
        found = {
            one: table.transaction_version(f"{self._app}/{name}") for one, name in names.items()
        }
        return {
            one: version for one, version in found.items() if version is not None and version >= 0
        }

    def _restored(self, table: Any) -> Any:
        """The version whose rows are the table's: another where it was restored after our commit.

        Delta restores files alone: transactions stay as they were.

        Raises:
            DamagedDataError: the log does not say to which version.
            StoreUnreachableError: that version cannot be read any more.
        """
        found, run = table, self._run_of(table)
        for entry in _newest_first(table):
            if entry["version"] > found.version():
                continue
            if self.mark(str(entry.get(_RUN))) == run:
                break
            if entry.get("operation") == "RESTORE":
                version = str(entry.get("operationParameters", {}).get("version"))
                if not version.isdecimal():
                    raise DamagedDataError(
                        f"{self._url}: it was restored, and its log does not say to which version,"
                        " so what is exported is not known: restore it by a version's number"
                    )
                found = self._load(int(version))
                run = self._run_of(found)
        return found

    def _run_of(self, table: Any) -> str:
        return str(table.transaction_version(f"{self._app}/run"))

    def _identity(self) -> Committed:
        where = f"{self._place.url}/{_IDENTITY}"
        return decode_committed(self._place.read(_IDENTITY), where)

    def _action(self, address: str, file: DataFile) -> Any:
        from deltalake.transaction import AddAction

        below = address.removeprefix(self._place.location("")).lstrip("/")
        return AddAction(
            path=f"{place_name(self._topic)}/{below}",
            size=file.size_bytes,
            partition_values={DAY: file.day},
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


def make_delta(url: str, schema: pa.Schema) -> pa.Schema:
    """Make a table unless there is one; gives its schema, with the column `day`.

    Raises:
        MissingPackageError: deltalake is not installed.
    """
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise MissingPackageError(
            f"--delta needs deltalake ({error.name}): pip install 'tidemark-broker[delta]'"
        ) from error
    whole = schema.append(pa.field(DAY, pa.date32()))
    DeltaTable.create(url, whole, mode="ignore", partition_by=[DAY])
    return whole


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
