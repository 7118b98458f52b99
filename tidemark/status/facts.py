"""Observations of a cluster. Knows neither sockets nor what is good or bad."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_client.transport import Address
from tidemark.quorum.description import QuorumDescription

PAGE_KEY: Final = "tidemark.http.listener"
TIER_KEY: Final = "remote.log.storage.system.enable"
VOTERS_KEY: Final = "controller.quorum.voters"


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a node's health page.

    Attributes:
        status: green, yellow or red; "" where it could not be read.
        stage: starting, running, stopping, with how far it is.
        reasons: why it is not green; of "" why it could not be read.
        remedies: what to do, by reason, where the reason does not say it.
    """

    status: str
    stage: str = ""
    reasons: tuple[str, ...] = ()
    remedies: Mapping[str, str] = field(default_factory=dict)


class CopyLag(NamedTuple):
    """Closed segments of a tiered topic that are not in the remote tier yet, and their bytes."""

    segments: int
    size_bytes: int


@dataclass(slots=True)
class NodeFacts:
    """A broker or a controller.

    Attributes:
        address: where it was asked; None: its listener is unknown.
        is_fenced: of a broker, as the broker that was asked sees it.
        silence: why it does not answer; "" where it does.
        settings: those that it was asked for, by name; none of a node that does not know them.
        page: None: it has none.
        version: of Tidemark, as its page says; "" where it could not be read.
        copy_lag: of the tiered topics of which it leads a partition, as its page says.
    """

    id: int
    address: Address | None
    is_fenced: bool = False
    silence: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    page: Page | None = None
    version: str = ""
    copy_lag: Mapping[str, CopyLag] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterFacts:
    """A cluster.

    Attributes:
        cluster_id: "" where unknown.
        quorum: as its leader describes it; None: `quorum_silence` says why not.
        brokers: by id, fenced ones too; None: none was asked, or `broker_silence` says why not.
        controllers: by id, as far as they are known.
        topics: partitions by topic, of those that were seen.
        partition_count: of all topics; None: no broker was asked, or `partition_silence` says why
            they could not be counted.
        offline: those without a leader, as `topic-partition`; of those that were seen.
    """

    cluster_id: str = ""
    quorum: QuorumDescription | None = None
    quorum_silence: str = ""
    brokers: dict[int, NodeFacts] | None = None
    broker_silence: str = ""
    controllers: dict[int, NodeFacts] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    partition_count: int | None = None
    partition_silence: str = ""
    offline: list[str] = field(default_factory=list)

    @property
    def is_reached(self) -> bool:
        """Whether any node has answered."""
        asked = self.brokers is not None or self.quorum is not None
        return asked or any(not one.silence for one in self.controllers.values())
