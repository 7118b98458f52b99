"""An Iceberg table that exports are appended to, through pyiceberg.

What was exported stands in the properties of the snapshot that added the files, so both become
true in one commit, and a table that is rolled back is exported to from there again. The same stands
in a property of the table, for the day on which that snapshot is expired.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa

from pipeline.errors import DamagedDataError, MissingPackageError, OptionError, PipelineError
from pipeline.jobs.table_ledger import CommitConflictError, Seen
from pipeline.jobs.values import Committed, DataFile, decode_committed, encode_committed

_PREFIX: Final = "tidemark.export."
_RETRIES: Final = "commit.retry.num-retries"


class IcebergTable:
    """See `Table`."""

    def __init__(self, catalog: Any, identifier: str, topic: str) -> None:
        """Take an opened catalog and a table of it that exists."""
        self._catalog, self._identifier, self._topic = catalog, identifier, topic

    @property
    def name(self) -> str:
        """See `Table`."""
        return f"{self._catalog.name}.{self._identifier}"

    @property
    def location(self) -> str:
        """Where the table's files are."""
        found: str = self._catalog.load_table(self._identifier).location()
        return found.rstrip("/")

    def mark(self, run: str) -> str:
        """See `Table`."""
        return run

    def look(self) -> Seen:
        """See `Table`.

        The newest snapshot of ours among the ancestors of the current one counts. Where the oldest
        ancestor that is kept has a parent, snapshots were expired: then the property counts.
        """
        return self._seen(self._catalog.load_table(self._identifier))

    def append(
        self, seen: Seen, run: str, committed: Committed, files: Sequence[tuple[str, DataFile]]
    ) -> None:
        """See `Table`: the commit holds only for the snapshot that was looked at."""
        from pyiceberg.exceptions import (
            CommitFailedException,
            CommitStateUnknownException,
            RESTError,
            ServerError,
            ServiceUnavailableError,
        )

        later = (CommitStateUnknownException, ServerError, ServiceUnavailableError, OSError)

        table = self._catalog.load_table(self._identifier)
        if self._seen(table).epoch != seen.epoch:
            raise CommitConflictError(f"{self.name}: another export was faster")
        _without_retries(table)
        said = self._properties(Seen(committed, seen.epoch + 1, run))
        try:
            with _quiet(), table.transaction() as commit:
                if files:
                    commit.add_files([address for address, _ in files], snapshot_properties=said)
                else:
                    nothing = table.schema().as_arrow().empty_table()
                    commit.append(nothing, snapshot_properties=said)
                commit.set_properties(said)
        except CommitFailedException as error:
            raise CommitConflictError(f"{self.name}: the table changed: {error}") from error
        except later as error:
            raise CommitConflictError(f"{self.name}: the catalog failed: {error}") from error
        except (ValueError, RESTError) as error:  # columns that do not fit, no permission
            why = " ".join(str(error).split())[:500]
            raise PipelineError(f"{self.name} does not take the files: {why}") from error

    def named_files(self) -> set[str]:
        """See `Table`."""
        table = self._catalog.load_table(self._identifier)
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in table.metadata.snapshots
            for manifest in snapshot.manifests(table.io)
        }
        return {
            entry.data_file.file_path
            for manifest in manifests.values()
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        }

    def close(self) -> None:
        """See `Table`; catalogues of older versions of pyiceberg hold nothing."""
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def _seen(self, table: Any) -> Seen:
        key = f"{_PREFIX}{self._topic}"
        where = f"{self.name}: property {key}"
        oldest = None
        for snapshot in _ancestors(table):
            said = snapshot.summary.additional_properties if snapshot.summary else {}
            if f"{key}.epoch" in said:
                return _decode(said, key, where)
            oldest = snapshot
        is_cut = oldest is not None and oldest.parent_snapshot_id is not None
        if is_cut and f"{key}.epoch" in table.properties:
            return _decode(table.properties, key, where)
        return Seen(None, 0, "")

    def _properties(self, seen: Seen) -> dict[str, str]:
        assert seen.committed is not None
        key = f"{_PREFIX}{self._topic}"
        return {
            f"{key}.epoch": str(seen.epoch),
            f"{key}.run": seen.run,
            f"{key}.committed": encode_committed(seen.committed),
        }


def open_iceberg(name: str, topic: str, schema: pa.Schema) -> IcebergTable:
    """The table of a name, made if there is none: partitioned by Kafka partition and day.

    Args:
        name: `CATALOG.NAMESPACE.TABLE`; the catalog's settings are pyiceberg's own
            (`.pyiceberg.yaml`, environment).
        topic: whose exports are meant.
        schema: of the files.

    Raises:
        OptionError: the name or the catalog's settings are wrong.
        MissingPackageError: pyiceberg is not installed.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise MissingPackageError(
            f"--iceberg needs pyiceberg ({error.name}): pip install 'tidemark-broker[iceberg]'"
        ) from error
    catalog_name, _, identifier = name.partition(".")
    namespace = identifier.rpartition(".")[0]
    if not catalog_name or not namespace or not identifier.rpartition(".")[2]:
        raise OptionError(f"--iceberg={name}: give CATALOG.NAMESPACE.TABLE")
    try:
        catalog = load_catalog(catalog_name)
    except (ValueError, TypeError) as error:
        raise OptionError(
            f"--iceberg={name}: pyiceberg does not know the catalog {catalog_name}: describe it in"
            f" .pyiceberg.yaml or PYICEBERG_CATALOG__{catalog_name.upper()}__... ({error})"
        ) from error
    make_iceberg(catalog, identifier, schema)
    return IcebergTable(catalog, identifier, topic)


def make_iceberg(catalog: Any, identifier: str, schema: pa.Schema) -> None:
    """Make a table unless there is one."""
    from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError

    if catalog.table_exists(identifier):
        return
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(identifier.rpartition(".")[0])
    with (
        suppress(TableAlreadyExistsError),
        catalog.create_table_transaction(identifier, schema) as making,
        making.update_spec() as spec,
    ):
        spec.add_identity("partition")
        spec.add_field("timestamp", _day(), "timestamp_day")


def _day() -> Any:
    from pyiceberg.transforms import DayTransform

    return DayTransform()


def _ancestors(table: Any) -> Iterator[Any]:
    """The current snapshot and those that it stands on, as far as they are kept."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)


def _without_retries(table: Any) -> None:
    """Make a conflict an error: pyiceberg's own retry would commit without looking again.

    Only this process's view of the table is changed; a transaction sends its updates alone.
    """
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a warning for each column of each file that has no statistics on purpose."""
    noisy = logging.getLogger("pyiceberg.io.pyarrow")
    before = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        yield
    finally:
        noisy.setLevel(before)


def _decode(said: Any, key: str, where: str) -> Seen:
    try:
        epoch, run, committed = (said[f"{key}.{name}"] for name in ("epoch", "run", "committed"))
        return Seen(decode_committed(committed, where), int(epoch), run)
    except (KeyError, ValueError) as error:
        raise DamagedDataError(f"{where} is incomplete: {error!r}") from error
