"""Decide how a node's directories are formatted, and do it.

Source: Apache Kafka's storage tool, whose options and refusals these are.
"""

import string
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from kafka_protocol.errors import CorruptFileError, TidemarkError
from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from metadata_topic.raft.voters import VoterEndpoint, VoterSet
from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.rng import Rng, SystemRng
from tidemark.node_files.initial_controllers import (
    OPTION,
    InitialControllersError,
    parse_initial_controllers,
)

_ID_LETTERS: Final = frozenset(string.ascii_letters + string.digits + "-_.")
_ID_LENGTH_MAX: Final = 255


class FormatError(TidemarkError):
    """The directories cannot be formatted like this; nothing was written."""


@dataclass(frozen=True, slots=True)
class Formatted:
    """The result of the format step.

    Attributes:
        directories: those that were formatted now.
        skipped: those that were formatted before.
    """

    cluster_id: str
    directories: tuple[Path, ...]
    skipped: tuple[Path, ...]


def directories_of(config: BrokerConfig) -> tuple[Path, ...]:
    """Return the log directories, and the metadata directory when it is another one."""
    return tuple(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))


def is_formatted(config: BrokerConfig, disk: Disk | None = None) -> bool:
    """Say whether the metadata directory belongs to a node already."""
    return (disk or Disk()).exists(config.metadata_log_dir / META_PROPERTIES)


def format_node(
    config: BrokerConfig,
    *,
    cluster_id: str | None = None,
    standalone: bool = False,
    initial_controllers: str | None = None,
    no_initial_controllers: bool = False,
    ignore_formatted: bool = False,
    disk: Disk | None = None,
    rng: Rng | None = None,
) -> Formatted:
    """Write `meta.properties` and the bootstrap files of a node.

    Args:
        config: names directories, node and quorum.
        cluster_id: text to use; None for that of formatted directories, or a random one where the
            node can begin a cluster: a controller.
        standalone: make this controller the only voter of a quorum that can grow.
        initial_controllers: the voters of a new quorum, `ID@HOST:PORT:DIRECTORY,...`.
        no_initial_controllers: the quorum exists; this controller joins it without a vote.
        ignore_formatted: leave formatted directories as they are instead of refusing.
        disk: files.
        rng: makes the ids.

    Raises:
        FormatError: a directory is formatted, or belongs to another cluster or node, or the
            options do not fit the configuration. Nothing was written.
    """
    disk, rng = disk or Disk(), rng or SystemRng()
    directories = directories_of(config)
    skipped = tuple(path for path in directories if disk.exists(path / META_PROPERTIES))
    # A new disk of a node that has its metadata directory: the quorum is what it is.
    is_new_node = config.metadata_log_dir not in skipped
    chosen_by = _options(standalone, initial_controllers, no_initial_controllers)
    if is_new_node or chosen_by:
        _check_quorum(config, chosen_by)
    voters = _initial_voters(config, initial_controllers)
    if cluster_id is not None:
        _check_cluster_id(cluster_id)
    if skipped and not ignore_formatted:
        raise FormatError(
            f"log directory {skipped[0]} is already formatted; use --ignore-formatted to leave it "
            "as it is and format the others"
        )
    for path in skipped:
        cluster_id = _cluster_of(path, config.node_id, cluster_id, disk)
    if cluster_id is None and not config.is_controller:
        raise FormatError(
            "a node with process.roles=broker joins a cluster: say which with --cluster-id=ID, as "
            "meta.properties of its controllers has it (kafka-cluster.sh cluster-id asks them)"
        )
    chosen = cluster_id or uuid_to_text(rng.uuid())
    todo = tuple(path for path in directories if path not in skipped)
    if todo:
        plan = FormatPlan(
            cluster_id=chosen,
            node_id=config.node_id,
            log_dirs=todo,
            metadata_log_dir=config.metadata_log_dir,
            standalone=_own_endpoint(config) if standalone else None,
            voters=voters,
        )
        format_directory(plan, disk=disk, clock=SystemClock(), rng=rng)
    return Formatted(chosen, todo, skipped)


def format_cluster(configs: Iterable[BrokerConfig]) -> str:
    """Format those nodes of one cluster with static voters that are not formatted yet.

    The first one says which cluster it is: it draws the id, or has it from an earlier time.

    Returns:
        The cluster's id.

    Raises:
        FormatError: a directory belongs to another cluster or node.
    """
    cluster_id = None
    for config in configs:
        cluster_id = format_node(config, cluster_id=cluster_id, ignore_formatted=True).cluster_id
    assert cluster_id is not None
    return cluster_id


def _options(standalone: bool, initial_controllers: str | None, no_initial: bool) -> list[str]:
    """The options given that say who the first voters are; one at most is allowed."""
    given = {
        "--standalone": standalone,
        OPTION: initial_controllers is not None,
        "--no-initial-controllers": no_initial,
    }
    return [name for name, is_given in given.items() if is_given]


def _check_quorum(config: BrokerConfig, options: list[str]) -> None:
    """Refuse options that exclude each other or do not fit the configuration."""
    if len(options) > 1:
        raise FormatError(
            f"{' and '.join(options)} exclude each other; keep the one that fits: --standalone for "
            f"the only controller of a new quorum, {OPTION} for several, "
            "--no-initial-controllers to join a quorum that exists"
        )
    option = options[0] if options else ""
    if option in {"--standalone", OPTION} and config.has_static_voters:
        raise FormatError(
            f"{option} makes a quorum whose voters can change, but controller.quorum.voters "
            "fixes them; remove one of the two (controller.quorum.bootstrap.servers goes with "
            f"{option})"
        )
    if option == "--standalone" and not config.is_controller:
        raise FormatError(
            f"--standalone needs a controller, but process.roles={','.join(config.process_roles)}; "
            "leave it out on a broker"
        )
    if not option and config.is_controller and not config.has_static_voters:
        raise FormatError(
            "controller.quorum.voters is not set on this controller; use --standalone to make "
            f"it the first voter, {OPTION} to begin with several, or --no-initial-controllers "
            "to join a quorum that exists"
        )


def _own_endpoint(config: BrokerConfig) -> VoterEndpoint:
    listener = config.controller_listeners[0]
    return VoterEndpoint(listener.name, listener.host or "localhost", listener.port)


def _initial_voters(config: BrokerConfig, text: str | None) -> VoterSet | None:
    if text is None:
        return None
    try:
        voters = parse_initial_controllers(text, config.controller_listener_names[0])
    except InitialControllersError as error:
        raise FormatError(str(error)) from error
    # DIFFERS: Kafka formats it; the broker would hold a vote that it never gives.
    if not config.is_controller and config.node_id in voters.ids:
        raise FormatError(
            f"{OPTION} names node.id={config.node_id}, which is no controller: "
            f"process.roles={','.join(config.process_roles)}; leave the node out of the list"
        )
    return voters


def _check_cluster_id(text: str) -> None:
    if not text or len(text) > _ID_LENGTH_MAX or not _ID_LETTERS.issuperset(text):
        raise FormatError(
            f"--cluster-id={text!r}: must be letters, digits, '-', '_' and '.', at most "
            f"{_ID_LENGTH_MAX}; leave it out for a random one"
        )


def _cluster_of(path: Path, node_id: int, cluster_id: str | None, disk: Disk) -> str:
    """Return the cluster of a formatted directory, which must be this node's."""
    file = path / META_PROPERTIES
    try:
        meta = parse_meta_properties(disk.read_file(file))
    except CorruptFileError as error:
        raise FormatError(f"{file} cannot be understood: {error}") from error
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise FormatError(
            f"{file} belongs to cluster.id={meta.cluster_id}, not to cluster.id={cluster_id}"
        )
    if meta.node_id != node_id:
        raise FormatError(f"{file} belongs to node.id={meta.node_id}, not to node.id={node_id}")
    return meta.cluster_id
