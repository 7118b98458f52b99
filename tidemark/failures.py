"""What a user did wrong, said in one line: expected errors become a message and exit code 1."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def explained() -> Iterator[None]:
    """End the process with one message on stderr when an expected error comes out of the block."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except Exception as error:
        if not _is_expected(error):
            raise
        click.echo(f"tidemark: {error}", err=True)
        sys.exit(1)


def _is_expected(error: Exception) -> bool:
    """Say whether the message alone helps the user; any other error is our bug: show its stack."""
    # imported here: a start that goes well does not need all of them
    from broker.config.key import ConfigError
    from broker.node.directories import DirectoryError
    from kafka_client.blocking import ClusterError
    from metadata_topic.quorum.errors import UnusableMetadataError
    from metadata_topic.quorum.start.format import AlreadyFormattedError, NotFormattedError
    from pipeline.errors import PipelineError
    from rlm.upkeep.incarnation import OlderFormError
    from tidemark.node_files.formatting import FormatError
    from tidemark.node_files.log_directories import LogDirectoryError
    from tidemark.node_files.offline_topics import OfflineLogError
    from tidemark.quorum.description import QuorumError
    from tidemark.rsm.plugin import PluginError
    from tidemark.seed.records import SeedError

    expected = (ConfigError, DirectoryError, AlreadyFormattedError, NotFormattedError, FormatError)
    ours = (LogDirectoryError, OfflineLogError, ClusterError, PipelineError, PluginError)
    more = (SeedError, UnusableMetadataError, QuorumError, OlderFormError)
    return isinstance(error, (*expected, *ours, *more, OSError))
