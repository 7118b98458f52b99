"""The face of Tidemark: a broker for tests, the command line, names for plugin authors, errors.

`tidemark.Broker` and `tidemark.AsyncBroker` run a broker in processes of its own, for tests.
`tidemark.scan` reads a topic as Arrow. `tidemark.plugins` has what a storage plugin needs,
`tidemark.plugins.testing` its contract, `tidemark.errors` the errors. All other modules are
Tidemark's own and may change.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from pipeline.scan_options import ScanOptions
    from pipeline.scan_range import Places
    from tidemark.embedded.async_broker import AsyncBroker
    from tidemark.embedded.broker import Broker
    from tidemark.embedded.errors import BrokerError, BrokerStartError

    __version__: str

__all__ = ["AsyncBroker", "Broker", "BrokerError", "BrokerStartError", "__version__", "scan"]

_LAZY = {
    "AsyncBroker": "tidemark.embedded.async_broker",
    "Broker": "tidemark.embedded.broker",
    "BrokerError": "tidemark.embedded.errors",
    "BrokerStartError": "tidemark.embedded.errors",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: an import of tidemark stays quick."""
    if name in _LAZY:
        from importlib import import_module

        found: Any = getattr(import_module(_LAZY[name]), name)
    elif name == "__version__":
        from runtime.version import installed_version

        found = installed_version()
    else:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    globals()[name] = found
    return found


def scan(
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    bucket: str | None = None,
    start: "Places" = "earliest",
    end: "Places" = "latest",
    columns: Sequence[str] | None = None,
    **options: "Unpack[ScanOptions]",
) -> Any:
    """Read a topic as Arrow: gives a `pyarrow.RecordBatchReader`.

    See `pipeline.scan.scan`, which this is; it wants the extra `arrow`.

    Args:
        topic: its name.
        bootstrap_servers: of the cluster; without `bucket` it is asked where the store is.
        bucket: URL or directory of the store; alone, no broker is needed.
        start: first offset (inclusive), `earliest`, `latest`, a datetime, or one by partition.
        end: behind the last offset (exclusive), or as `start`.
        columns: those to build, in this order; default: all but `headers`.
        options: isolation, partitions, storage, client, fail_on_data_loss, topic_id, log_start,
            batch_bytes.

    Raises:
        MissingPackageError: the packages of the extra `arrow` are not installed.
        OptionError: an option is wrong.
        PipelineError, ClusterError: the log cannot be opened or planned.
    """
    from pipeline.errors import need  # an import of tidemark stays as quick as it is

    need("arrow", "pyarrow", "numpy")
    from pipeline.scan import scan as read

    return read(
        topic,
        bootstrap_servers=bootstrap_servers,
        bucket=bucket,
        start=start,
        end=end,
        columns=columns,
        **options,
    )
