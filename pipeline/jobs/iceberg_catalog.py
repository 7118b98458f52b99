"""Opens an Iceberg table by its name in a catalog of pyiceberg's, or makes it."""

from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from pipeline.errors import MissingPackageError, OptionError
from pipeline.jobs.catalog_calls import CatalogCalls, said
from pipeline.jobs.iceberg_table import IcebergTable
from runtime.version import install_command

_MADE_WITH: Final = MappingProxyType(
    {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
        "commit.manifest-merge.enabled": "true",
    }
)
"""Properties of tables that are made here: a commit an hour would else leave a file each, and one
manifest more for every reader."""


def open_iceberg(name: str, topic: str, schema: pa.Schema) -> IcebergTable:
    """The table of a name, made if there is none: partitioned by Kafka partition and day.

    Args:
        name: `CATALOG.NAMESPACE.TABLE`; the catalog's settings are pyiceberg's own
            (`.pyiceberg.yaml`, environment).
        topic: whose exports are meant.
        schema: of the files.

    Raises:
        OptionError: the name or the catalog's settings are wrong, or the table has other columns.
        StoreUnreachableError: the catalog failed, refused or did not answer.
        MissingPackageError: pyiceberg is not installed.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise MissingPackageError(
            f"--iceberg needs pyiceberg ({error.name}): {install_command('iceberg')}"
        ) from error
    catalog_name, _, identifier = name.partition(".")
    namespace = identifier.rpartition(".")[0]
    if not catalog_name or not namespace or not identifier.rpartition(".")[2]:
        raise OptionError(f"--iceberg={name}: give CATALOG.NAMESPACE.TABLE")
    calls = CatalogCalls(name)
    try:
        catalog = calls.translated(partial(load_catalog, catalog_name))
    except (ValueError, TypeError) as error:
        raise OptionError(
            f"--iceberg={name}: pyiceberg does not know the catalog {catalog_name}: describe it in"
            f" .pyiceberg.yaml or PYICEBERG_CATALOG__{catalog_name.upper()}__... ({error})"
        ) from error
    try:
        calls.translated(partial(make_iceberg, catalog, identifier, schema))
    except ValueError as error:  # names are checked by the catalog, each kind has rules of its own
        calls.close()
        raise _wrong_name(name, error) from error
    return IcebergTable(catalog, identifier, topic, calls)


def _wrong_name(name: str, error: ValueError) -> OptionError:
    catalog, namespace, *table = name.split(".")
    if len(table) == 1:
        return OptionError(f"--iceberg={name}: the catalog does not take this name: {said(error)}")
    flat = ".".join((catalog, namespace, "_".join(table)))
    return OptionError(
        f"--iceberg={name}: the catalog {catalog} has no namespaces within namespaces, and each dot"
        f" begins one: give a table without dots, such as --iceberg={flat}"
    )


def make_iceberg(catalog: Any, identifier: str, schema: pa.Schema) -> None:
    """Make a table unless there is one.

    Raises:
        OptionError: there is one with other columns.
    """
    from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError

    if catalog.table_exists(identifier):
        _check_columns(catalog.load_table(identifier).schema(), schema, identifier)
        return
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(identifier.rpartition(".")[0])
    with (
        suppress(TableAlreadyExistsError),
        catalog.create_table_transaction(identifier, schema, properties=dict(_MADE_WITH)) as making,
        making.update_spec() as spec,
    ):
        spec.add_identity("partition")
        spec.add_field("timestamp", _day(), "timestamp_day")


def _check_columns(found: Any, schema: pa.Schema, identifier: str) -> None:
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    try:
        files = pyarrow_to_schema(schema, name_mapping=found.name_mapping)
    except ValueError as error:
        raise OptionError(
            f"--iceberg: the table {identifier} has not all columns of the files: {said(error)};"
            " export to a table of its own"
        ) from error
    ours = {field.field_id: field for field in files.fields}
    wrong = [
        f"{field.name} is {field.field_type}, the files have {ours[field.field_id].field_type}"
        for field in found.fields
        if field.field_id in ours and ours[field.field_id].field_type != field.field_type
    ] + [
        f"{field.name} must not be null, the files may have none"
        for field in found.fields
        if field.required and not (field.field_id in ours and ours[field.field_id].required)
    ]
    if wrong:
        raise OptionError(
            f"--iceberg: the table {identifier} has other columns: {'; '.join(wrong)}: export to a"
            " table of its own"
        )


def _day() -> Any:
    from pyiceberg.transforms import DayTransform

    return DayTransform()
