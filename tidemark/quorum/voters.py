"""Which voter a controller would be, by its own files, and how a command names it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.config.broker_config import BrokerConfig
from broker.node.raft_config import own_endpoints
from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import uuid_from_any_text, uuid_to_text
from metadata_topic.raft.voters import ReplicaKey, Voter
from runtime.disk import Disk
from tidemark.quorum.description import QuorumError

_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class VoterQuestion:
    """A request about a voter.

    Attributes:
        body: without the cluster's id.
    """

    api_key: ApiKey
    body: Any  # the codec makes its class at run time


def voter_of(config: BrokerConfig, path: Path, disk: Disk) -> Voter:
    """The voter that a formatted controller would be.

    Args:
        config: of the controller.
        path: of its file, for messages.
        disk: has its directories.

    Raises:
        QuorumError: it is none, or its files do not say enough.
    """
    if not config.is_controller:
        roles = ",".join(config.process_roles)
        raise QuorumError(f"{path}: process.roles={roles} is no controller")
    endpoints = own_endpoints(config)
    if not endpoints:
        shown = ",".join(str(one) for one in config.controller_listeners)
        raise QuorumError(
            f"{path}: listeners={shown}: must name the host and the port at which the other "
            "controllers reach this one, there or in advertised.listeners"
        )
    file = config.metadata_log_dir / META_PROPERTIES
    try:
        meta = parse_meta_properties(disk.read_file(file))
    except FileNotFoundError:
        raise QuorumError(
            f"{file} does not exist: format the controller first, with `tidemark format "
            f"--config {path} --no-initial-controllers --cluster-id ID`; this command needs its "
            "directory on this machine"
        ) from None
    except (OSError, CorruptFileError) as error:
        raise QuorumError(f"{file} cannot be read: {error}") from error
    if meta.node_id != config.node_id or meta.directory_id is None:
        raise QuorumError(
            f"{file} is of node.id={meta.node_id} and has "
            f"{'no' if meta.directory_id is None else 'a'} directory id; {path} is of "
            f"node.id={config.node_id}"
        )
    return Voter(ReplicaKey(config.node_id, meta.directory_id), endpoints)


def key_of(controller_id: int, directory_id: str) -> ReplicaKey:
    """The voter that options name.

    Raises:
        QuorumError: they name none.
    """
    if controller_id < 0:
        raise QuorumError(f"Invalid negative --controller-id: {controller_id}")
    try:
        return ReplicaKey(controller_id, uuid_from_any_text(directory_id))
    except ValueError as error:
        raise QuorumError(f"Failed to parse --controller-directory-id: {error}") from error


def adding(voter: Voter) -> VoterQuestion:
    """Let it vote."""
    cls = codec.request(ApiKey.ADD_RAFT_VOTER).cls
    body = cls(
        timeout_ms=_TIMEOUT_MS,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        listeners=[
            cls.Listeners(name=one.name, host=one.host, port=one.port) for one in voter.endpoints
        ],
    )
    return VoterQuestion(ApiKey.ADD_RAFT_VOTER, body)


def removing(key: ReplicaKey) -> VoterQuestion:
    """Let it vote no more."""
    cls = codec.request(ApiKey.REMOVE_RAFT_VOTER).cls
    body = cls(voter_id=key.id, voter_directory_id=key.directory_id)
    return VoterQuestion(ApiKey.REMOVE_RAFT_VOTER, body)


def added_text(voter: Voter, *, dry_run: bool) -> str:
    """The text about an addition, in the words of Kafka's tool."""
    places = ", ".join(
        f"{one.name}://{f'[{one.host}]' if ':' in one.host else one.host}:{one.port}"
        for one in voter.endpoints
    )
    done = "DRY RUN of adding" if dry_run else "Added"
    directory = uuid_to_text(voter.key.directory_id)
    return f"{done} controller {voter.key.id} with directory id {directory} and endpoints: {places}"


def removed_text(key: ReplicaKey, *, dry_run: bool) -> str:
    """The text about a removal."""
    done = "DRY RUN of removing" if dry_run else "Removed"
    return f"{done} KRaft controller {key.id} with directory id {uuid_to_text(key.directory_id)}"
