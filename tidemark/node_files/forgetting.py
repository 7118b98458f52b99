"""Gives a lost log directory up in the metadata, where decisions are taken.

A sole voter is stopped, and decides by its own metadata log. Any other node asks the active
controller, under the epoch of its broker: one that has registered again meanwhile loses nothing.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from broker.handlers.controllers.replica_directories import FORGETS, FORGETS_LAST_COPIES
from broker.node.directories import Directories
from broker.node.directory_checks import check_incarnations_of_directories
from broker.node.metadata_log import metadata_log_config, open_metadata_node
from kafka_client.blocking import BlockingClient, ClusterError
from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.controller.directories import Forgotten, forget_directory, replicas_of_broker
from metadata_topic.image.image import MetadataImage
from runtime.disk import Disk
from runtime.ports import system_ports

_NOBODY: Final = -1


class ForgetError(TidemarkError):
    """The active controller did not give the directory up, or it is unknown whether it did."""


async def forget_as_sole_voter(
    config: BrokerConfig,
    directories: Directories,
    directory_id: bytes,
    *,
    begins_last_copies: bool,
    disk: Disk,
) -> Forgotten | None:
    """Decide by the metadata log of this node, which is stopped; see `forget_directory`.

    Returns:
        None where this node is not the only voter: nothing was done.

    Raises:
        DirectoryError: the metadata directory is of another time.
    """
    logging.getLogger("metadata_topic").setLevel(logging.WARNING)
    ports = replace(system_ports(asyncio.get_running_loop()), disk=disk)
    node = open_metadata_node(config, directories, ports, lambda _error: None)
    try:
        # An old copy of the metadata must not be written to.
        node.open(
            lambda image: check_incarnations_of_directories(
                directories, image, config.log_dirs, config.node_id, disk
            )
        )
        if not node.is_alone:
            return None
        node.start()
        await node.ready()
        return await node.submit(
            lambda image: forget_directory.steps(
                image,
                config.node_id,
                directory_id,
                working=list(directories.ids.values()),
                begins_last_copies=begins_last_copies,
                defaults=metadata_log_config(config).election_defaults,
            )
        )
    finally:
        await node.close()
        ports.executors.shutdown()


def forget_at_controllers(
    config: BrokerConfig, image: MetadataImage, directory_id: bytes, *, begins_last_copies: bool
) -> Forgotten:
    """Ask the active controller, see `forget_directory`.

    Args:
        config: names the controllers.
        image: what this node knows of the cluster.
        directory_id: to forget.
        begins_last_copies: what was committed is given up.

    Raises:
        ForgetError: none of them leads, or the active one refuses; the text says which.
    """
    question = forget_question(
        image, config.node_id, directory_id, begins_last_copies=begins_last_copies
    )
    voters = [(one.host, one.port) for one in config.controller_quorum_voters]
    addresses = voters or config.controller_quorum_bootstrap_servers
    silent: list[str] = []
    with BlockingClient(",".join(f"{host}:{port}" for host, port in addresses)) as client:
        for address in client.bootstrap:
            try:
                answer = client.ask(address, ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, question)
            except ClusterError as error:
                silent.append(str(error))
                continue
            if answer.error_code != ErrorCode.NOT_CONTROLLER:
                return forgotten_by(answer, image, config.node_id, directory_id)
    why = f": {'; '.join(silent)}" if silent else ""
    raise ForgetError(
        f"none of the controllers {addresses} says that it leads, so it is not known whether the "
        f"directory was forgotten; give the command again{why}"
    )


def forget_question(
    image: MetadataImage, broker_id: int, directory_id: bytes, *, begins_last_copies: bool
) -> Any:
    """Make the request that gives a directory up."""
    cls, broker = request(ApiKey.ASSIGN_REPLICAS_TO_DIRS).cls, image.brokers.get(broker_id)
    return cls(
        broker_id=broker_id,
        broker_epoch=_NOBODY if broker is None else broker.epoch,
        directories=[cls.Directories(id=directory_id, topics=[])],
        forgets=FORGETS_LAST_COPIES if begins_last_copies else FORGETS,
    )


def forgotten_by(
    answer: Any, image: MetadataImage, broker_id: int, directory_id: bytes
) -> Forgotten:
    """Read the answer of the active controller.

    Args:
        answer: of AssignReplicasToDirs.
        image: before it was asked.
        broker_id: whose directory.
        directory_id: that was to be forgotten.

    Raises:
        ForgetError: it has not given the directory up.
    """
    code = ErrorCode.of(answer.error_code)
    if code == ErrorCode.STALE_BROKER_EPOCH:
        raise ForgetError(
            f"the directory was not forgotten: broker {broker_id} has registered again meanwhile. "
            "Give the command again"
        )
    if code == ErrorCode.INVALID_REQUEST:
        raise ForgetError(
            f"the directory was not forgotten: broker {broker_id} serves from it, or its session "
            "is not over yet. Stop it, and give the command again"
        )
    if code != ErrorCode.NONE:
        raise ForgetError(f"the directory was not forgotten: the controller answers {code.name}")
    given_up = [
        [
            (topic.topic_id, one.partition_index)
            for topic in entry.topics
            for one in topic.partitions
        ]
        for entry in answer.directories
    ]
    hosted = {
        (one.topic.id, one.partition): one.topic.name
        for one in replicas_of_broker(image, broker_id)
        if one.directory_id == directory_id
    }
    if hosted and not any(given_up):
        raise ForgetError(
            "the directory was not forgotten: the active controller is Apache Kafka's, or of an "
            "earlier version, and cannot do it. Delete the topics, or upgrade the controllers"
        )
    replicas, leaderless = (
        [(hosted[one], one[1]) for one in entry if one in hosted]
        for entry in (*given_up, [], [])[:2]
    )
    return Forgotten(replicas, leaderless)
