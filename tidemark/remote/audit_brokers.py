"""Each broker in an audit: the partitions that it leads, and its claim on the store.

The tier of a partition's leader copies and deletes, so a finding counts for the leader's broker. A
broker without a claim has never written to this store: its tier is off, or its settings name
another store, which no other part of an audit would show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_protocol.types import TopicIdPartition
from pipeline.cluster.cluster import Cluster
from rsm_plugins.api import ClaimKeeper, RemoteStorageError, RemoteStorageManager

NOBODY = -1
"""Leads partitions of deleted topics, and those that have no leader now."""


@dataclass(slots=True)
class Led:
    """Of the partitions of one leader that the audit looked at.

    Attributes:
        partitions: how many.
        finished: their finished segments.
        finished_bytes: sizes of the logs of these.
        findings: how many are about them.
    """

    partitions: int = 0
    finished: int = 0
    finished_bytes: int = 0
    findings: int = 0


@dataclass(frozen=True, slots=True)
class BrokerAudit:
    """One broker.

    Attributes:
        node_id: NOBODY for what no broker leads.
        address: host:port; empty where it is no broker of the cluster.
        claim: what the store holds; None where it holds none, or none could be read.
        no_claim: why there is none; empty where there is, or where it is unknown.
    """

    node_id: int
    address: str
    led: Led
    claim: int | None = None
    no_claim: str = ""


def leader_of(cluster: Cluster, partition: TopicIdPartition) -> int:
    """The node that leads a partition, by one look at the cluster; NOBODY: none does."""
    topic = cluster.topics.get(partition.topic)
    if topic is None or topic.topic_id != partition.topic_id:
        return NOBODY
    return topic.leaders.get(partition.partition, NOBODY)


def broker_audits(
    cluster: Cluster, led: Mapping[int, Led], storage: RemoteStorageManager
) -> Sequence[BrokerAudit]:
    """All brokers of a cluster by node id, then other leaders, and partitions without one."""
    brokers = [
        _audited(cluster.cluster_id, node_id, f"{host}:{port}", led.get(node_id, Led()), storage)
        for node_id, (host, port) in sorted(cluster.brokers.items())
    ]
    rest = sorted(led.keys() - cluster.brokers.keys(), reverse=True)
    return [*brokers, *(BrokerAudit(node_id, "", led[node_id]) for node_id in rest)]


def _audited(
    cluster_id: str, node_id: int, address: str, led: Led, storage: RemoteStorageManager
) -> BrokerAudit:
    if not isinstance(storage, ClaimKeeper):
        return BrokerAudit(node_id, address, led)
    try:
        claim = storage.read_claim(cluster_id, node_id)
    except RemoteStorageError as error:  # damaged, too
        return BrokerAudit(node_id, address, led, no_claim=f"its claim cannot be read: {error}")
    no_claim = "" if claim is not None else "it has no claim in this store"
    return BrokerAudit(node_id, address, led, claim, no_claim)
