"""A lone combined node becomes a broker beside controllers of their own; its data stay in place.

The node is stopped. Its metadata log, of which it is the only voter, is all committed: every new
controller begins with a snapshot of it (`metadata_topic.quorum.start.seed_voter`). The broker
fetches the metadata from them, as any broker does.

Three durable changes, in this order, so that at no time both the node can start as what it was and
the new cluster can start:

1. All new directories and files are made under a name that no node starts from.
2. The node's metadata directory is renamed: no controller starts on what is left.
3. The new directories get their name.

A crash before 2 leaves the node as it was, and the next call makes everything again. After 2
nothing is made again: the next call only does what is left of 3. docs/controllers.md has the table.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.listeners import Voter, parse_voters
from broker.config.properties import dump
from broker.config.rules import CLUSTER_SECRET_KEY
from broker.node.cluster_secret import draw_cluster_secret, read_cluster_secret
from broker.node.directories import Directories
from broker.node.directory_checks import check_incarnations_of_directories
from broker.node.raft_config import quorum_settings
from kafka_protocol.errors import CorruptFileError, TidemarkError
from kafka_protocol.files.sealed import seal, unseal
from kafka_protocol.wire.primitives import uuid_to_text
from local_log.manager.log_dir import CLEAN_SHUTDOWN
from metadata_topic.controller.directories import known_directories
from metadata_topic.image.image import KRAFT_VERSION, MetadataImage
from metadata_topic.image.model import DIRECTORY_LOST
from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.quorum.start.format import (
    METADATA_DIRECTORY,
    SET_ASIDE_DIRECTORY,
    FormatPlan,
    format_directory,
    make_dirs_durably,
)
from metadata_topic.quorum.start.open_replica import found_quorum
from metadata_topic.quorum.start.quorum_start import (
    Membership,
    plan_quorum_start,
    static_voter_set,
)
from metadata_topic.quorum.start.recovery import FoundMetadata, read_directory
from metadata_topic.quorum.start.seed_voter import Seed, seed_voter
from metadata_topic.raft.messages import Node, SnapshotId
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from runtime.clock import Clock
from runtime.disk import Disk
from runtime.rng import Rng
from tidemark.node_files.formatting import directories_of
from tidemark.node_files.initial_controllers import parse_initial_controllers
from tidemark.node_files.log_directories import LOST, stopped
from tidemark.node_files.split_properties import (
    PAGES_KEY,
    address,
    broker_entries,
    controller_entries,
    pages,
    quorum_entries,
)

OPTION: Final = "--controllers"
UNFINISHED: Final = ".unfinished-split"
SECRET: Final = "cluster.secret"
NOTE: Final = "tidemark-split"
"""In the former node's metadata: which of several attempts is the one that took its votes."""
_HEAD: Final = f"{NOTE} 1"


class SplitError(TidemarkError):
    """The node cannot be split, or not like this; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of the new cluster.

    Attributes:
        into: holds everything that was made.
        is_dynamic: the voters are in the log (kraft.version 1).
        set_aside: the metadata of the former node.
        other_brokers: of the former node's cluster; their files must name the new controllers.
    """

    cluster_id: str
    node_id: int
    controllers: tuple[Voter, ...]
    into: Path
    set_aside: Path
    is_dynamic: bool = False
    other_brokers: tuple[int, ...] = ()

    def properties(self, controller: Voter) -> Path:
        """The file that a controller is started with."""
        return self.into / f"controller-{controller.id}.properties"

    @property
    def broker_properties(self) -> Path:
        """The file that the broker is started with."""
        return self.into / f"broker-{self.node_id}.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Former:
    """The node as it was found: stopped, sound, and the only voter."""

    found: FoundMetadata
    image: MetadataImage
    epoch: int
    kraft_version: int
    listener_name: str


def split_node(
    config: BrokerConfig,
    *,
    controllers: str,
    into: Path,
    is_dynamic: bool = False,
    disk: Disk,
    clock: Clock,
    rng: Rng,
) -> Split:
    """Make the directories of new controllers, and the node a broker; or finish doing so.

    Args:
        config: of the combined node, which is stopped.
        controllers: `ID@HOST:PORT,...`.
        into: is made, with a directory for each controller and the properties of all nodes.
        is_dynamic: the voters are to be in the log; they are in any case where the node's own is.
        disk: files.
        clock: stamps.
        rng: draw ids and the cluster's secret.

    Raises:
        SplitError, ConfigError, DirectoryError, UnusableMetadataError: nothing was changed.
        OSError: the disk failed; the same call again continues.
    """
    voters = _controllers(config, controllers)
    into = into.resolve()
    _check_place(config, into)
    metadata = config.metadata_log_dir / METADATA_DIRECTORY
    set_aside = config.metadata_log_dir / SET_ASIDE_DIRECTORY
    unfinished = into.parent / f"{into.name}{UNFINISHED}"
    with stopped(config, disk) as directories:
        plan = Split(directories.cluster_id, config.node_id, voters, into, set_aside)
        if disk.exists(set_aside):
            return _finish(plan, unfinished, disk)
        if disk.exists(into):
            raise SplitError(f"{into} is there already: name a directory that is to be made")
        former = _read_former(config, directories, disk, rng)
        _check_ids(voters, former.image, config.node_id)
        plan = replace(
            plan,
            is_dynamic=is_dynamic or former.kraft_version > 0,
            other_brokers=tuple(sorted(former.image.brokers.keys() - {config.node_id})),
        )
        files = _properties(plan, config, disk)
        disk.remove_tree(unfinished)
        _make(plan, files, former, unfinished, disk=disk, clock=clock, rng=rng)
        disk.atomic_write(metadata / NOTE, _dump_note(plan))
        disk.rename(metadata, set_aside, durable=True)
        disk.rename(unfinished, into, durable=True)
        return plan


# -- what is refused ----------------------------------------------------------------------------


def _controllers(config: BrokerConfig, text: str) -> tuple[Voter, ...]:
    if not (config.is_controller and config.is_broker):
        raise SplitError(
            f"process.roles={','.join(config.process_roles)}: only a node that is broker and "
            "controller can be split"
        )
    found = parse_voters(OPTION, [one.strip() for one in text.split(",")])
    places = {(one.host, one.port) for one in found}
    if len(places) < len(found) or any(one.port == 0 for one in found):
        raise ConfigError(OPTION, text, "each controller needs a port of its own, above 0")
    return tuple(sorted(found, key=lambda one: one.id))


def _check_ids(voters: Sequence[Voter], image: MetadataImage, node_id: int) -> None:
    taken = [one.id for one in voters if one.id == node_id or one.id in image.brokers]
    if taken:
        raise SplitError(
            f"{OPTION}: {taken[0]} is the id of a broker, which it keeps with its replicas: give "
            "the controller another one"
        )


def _check_place(config: BrokerConfig, into: Path) -> None:
    for path in directories_of(config):
        if into.is_relative_to(path.resolve()):
            raise SplitError(f"{into} is in the log directory {path}: name another place")


def _read_former(config: BrokerConfig, directories: Directories, disk: Disk, rng: Rng) -> _Former:
    """Read and validate the node; nothing is changed."""
    for path in config.log_dirs:
        if path in directories.ids and not disk.exists(path / CLEAN_SHUTDOWN):
            raise SplitError(
                f"the node was not stopped cleanly (there is no {path / CLEAN_SHUTDOWN}): start "
                "it, and stop it with SIGTERM"
            )
    directory = config.metadata_log_dir / METADATA_DIRECTORY
    files = SnapshotFiles(directory, disk, rng, cluster_id=directories.cluster_id)
    election = QuorumStateFile(directory, disk).find()
    found = read_directory(directory, files=files, disk=disk)
    me = ReplicaKey(config.node_id, directories.ids[config.metadata_log_dir])
    start = plan_quorum_start(me, quorum_settings(config), found_quorum(found, election))
    if start.membership is not Membership.SOLE_VOTER:
        raise SplitError(
            f"node {me.id} is {start.membership.value}, and the voters are "
            f"{list(start.voters.ids)}: only the log of the only voter is known to be committed"
        )
    if found.is_blank:
        raise SplitError(
            f"the node was never started: {directory} has no metadata. Format controllers and "
            "brokers with `tidemark format`"
        )
    image = found.loader.take()[0]
    check_incarnations_of_directories(directories, image, config.log_dirs, config.node_id, disk)
    _check_complete(config, directories, image)
    return _Former(
        found=found,
        image=image,
        epoch=max(found.last_epoch, start.election.epoch),
        kraft_version=found.history.latest.kraft_version,
        listener_name=config.controller_listener_names[0],
    )


def _check_complete(config: BrokerConfig, directories: Directories, image: MetadataImage) -> None:
    """Refuse a node that lacks a disk: a copy that is half there looks like that."""
    for path in config.log_dirs:
        if path not in directories.ids:
            why = directories.offline.get(path, "it is not formatted")
            raise SplitError(f"log directory {path} cannot be used: {why}")
    missing = known_directories(image, config.node_id) - set(directories.ids.values())
    if missing:
        shown = ", ".join(
            sorted(LOST if one == DIRECTORY_LOST else uuid_to_text(one) for one in missing)
        )
        raise SplitError(
            f"log directory {shown} is missing, and the metadata have replicas in it: bring it "
            "back, or give it up with `tidemark directories forget`"
        )


# -- what is made -------------------------------------------------------------------------------


def _properties(plan: Split, config: BrokerConfig, disk: Disk) -> dict[str, dict[str, str]]:
    """The entries of every new node, by file name; each could be started with them."""
    quorum = quorum_entries(plan.controllers, is_dynamic=plan.is_dynamic)
    listeners = pages(config, plan.controllers)
    files = {
        plan.properties(one).name: controller_entries(
            config, one, quorum, plan.into / f"controller-{one.id}"
        )
        | ({PAGES_KEY: listeners[one.id]} if listeners else {})
        for one in plan.controllers
    }
    lacks_secret = (
        config.remote_log_storage_system_enable and read_cluster_secret(config, disk) is None
    )
    secret = plan.into / SECRET if lacks_secret else None
    files[plan.broker_properties.name] = broker_entries(config, quorum, secret)
    for entries in files.values():
        BrokerConfig.load(entries)
    return files


def _make(
    plan: Split,
    files: dict[str, dict[str, str]],
    former: _Former,
    unfinished: Path,
    *,
    disk: Disk,
    clock: Clock,
    rng: Rng,
) -> None:
    """Make everything below `unfinished`; durable when it returns.

    The files name the place where all of it will be.
    """
    make_dirs_durably(disk, unfinished)
    for name, entries in files.items():
        # For its owner alone: the node's file may hold credentials of the store.
        disk.create_private(unfinished / name, dump(entries).encode())
    if files[plan.broker_properties.name].get(CLUSTER_SECRET_KEY) == str(plan.into / SECRET):
        draw_cluster_secret(unfinished / SECRET, disk, rng)
    ids = {one.id: rng.uuid() for one in plan.controllers}
    seed = Seed(
        cluster_id=plan.cluster_id,
        # It is no controller any more; Kafka has no record that takes a registration back.
        image=former.image.without_controllers(),
        snapshot_id=SnapshotId(former.found.verdict.end_offset, former.epoch + 1),
        kraft_version=int(plan.is_dynamic),
        voters=_voter_set(plan, former.listener_name, ids),
    )
    features = dict(former.image.features)
    features.pop(KRAFT_VERSION, None)
    for one in plan.controllers:
        home = unfinished / f"controller-{one.id}"
        seed_voter(home, seed, disk=disk, clock=clock, rng=rng)
        new = FormatPlan(
            plan.cluster_id, one.id, (home,), home, features=features,
            directory_ids={home: ids[one.id]},
        )  # fmt: skip
        format_directory(new, disk=disk, clock=clock, rng=rng)


def _voter_set(plan: Split, listener_name: str, ids: dict[int, bytes]) -> VoterSet:
    if not plan.is_dynamic:
        nodes = [Node(one.id, one.host, one.port) for one in plan.controllers]
        return static_voter_set(nodes, listener_name)
    said = [f"{one.id}@{address(one)}:{uuid_to_text(ids[one.id])}" for one in plan.controllers]
    return parse_initial_controllers(",".join(said), listener_name)


# -- what a crash left --------------------------------------------------------------------------


def _finish(plan: Split, unfinished: Path, disk: Disk) -> Split:
    """Give the directories their name, if that is left to do; returns what they were made by.

    The node is a broker already, so they are whole; they may be in use, and are not made again.
    Those of an attempt that was given up before are an older copy of what the cluster has by now.
    """
    was = f"node {plan.node_id} was split before: its metadata are in {plan.set_aside}"
    try:
        done = _parse_note(plan, disk.read_file(plan.set_aside / NOTE))
    except (FileNotFoundError, CorruptFileError) as error:
        raise SplitError(
            f"{was}; {NOTE} does not say which attempt that was: {error}. If its cluster serves, "
            "nothing is left to do; else see `Back` in docs/controllers.md"
        ) from error
    if (done.into, done.controllers) != (plan.into, plan.controllers):
        raise SplitError(
            f"{was}. That was --into {done.into} {OPTION} {_shown(done.controllers)}: what another "
            "attempt left is an older copy"
        )
    if disk.exists(unfinished):
        if disk.exists(plan.into):
            raise SplitError(f"{plan.into} is there already, and is to be made: move it away")
        disk.rename(unfinished, plan.into, durable=True)
    elif not disk.exists(plan.into):
        raise SplitError(
            f"{was}. {plan.into}, which was made of it, is not there any more: if its cluster "
            "serves, nothing is left to do; else see `Back` in docs/controllers.md"
        )
    return done


def _dump_note(plan: Split) -> bytes:
    said = {
        "into": str(plan.into),
        "controllers": _shown(plan.controllers),
        "is_dynamic": plan.is_dynamic,
        "other_brokers": plan.other_brokers,
    }
    return seal([_HEAD, json.dumps(said)])


def _parse_note(plan: Split, data: bytes) -> Split:
    (line,) = unseal(data, head=_HEAD)
    said = json.loads(line)
    return replace(
        plan,
        into=Path(said["into"]),
        controllers=parse_voters(OPTION, said["controllers"].split(",")),
        is_dynamic=said["is_dynamic"],
        other_brokers=tuple(said["other_brokers"]),
    )


def _shown(controllers: Sequence[Voter]) -> str:
    return ",".join(f"{one.id}@{address(one)}" for one in controllers)
