"""Opens an Iceberg table by its name in a catalog of pyiceberg's, or makes it."""

from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from pipeline.errors import MissingPackageError, OptionError
from pipeline.jobs.iceberg_table import IcebergTable

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
        catalog.create_table_transaction(identifier, schema, properties=dict(_MADE_WITH)) as making,
        making.update_spec() as spec,
    ):
        spec.add_identity("partition")
        spec.add_field("timestamp", _day(), "timestamp_day")


def _day() -> Any:
    from pyiceberg.transforms import DayTransform

    return DayTransform()
