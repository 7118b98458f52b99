"""Whether the metadata topic of a cluster may decide what is deleted from its store.

It may not where the brokers' metadata manager is another, for then the topic tells nothing of what
they copied. Nor where the directories are an older copy: what the later state has copied looks like
orphans then, and the right directories still name it. Only the store's claim tells that. So the
broker that leads an orphan's metadata partition must be the one whose counter lies here, and the
store's claim must be one that this counter has noted. Whatever is missing proves nothing.
"""

from collections.abc import Mapping

from broker.config.broker_config import BrokerConfig
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from pipeline.cluster.cluster import broker_setting, look
from rlm.maintenance.incarnation import FILE_NAME, Counter, read
from rlmm.loader import JAVA_COUNTERPARTS
from rlmm.topic_based.topic_port import metadata_partition_for
from rsm_plugins.api import ClaimKeeper, RemoteObjectDamagedError, RemoteStorageManager
from runtime.disk import Disk
from tidemark.remote.session import Session

MANAGER_KEY = "remote.log.metadata.manager.class.name"
OURS = frozenset((*JAVA_COUNTERPARTS, *JAVA_COUNTERPARTS.values()))


class Trust:
    """Asks brokers and store as often as deletions are to continue."""

    def __init__(
        self, session: Session, storage: RemoteStorageManager, config: BrokerConfig | None
    ) -> None:
        """Nothing is asked yet.

        Args:
            session: the cluster.
            storage: the plugin.
            config: of a broker that runs on this machine; None: nothing may be deleted.
        """
        self._session, self._storage, self._config = session, storage, config
        self._leaders: Mapping[int, int] = {}

    def why_refused(self) -> str | None:
        """Why nothing may be deleted now; None: what this broker's metadata tell of may be.

        Raises:
            ClusterError, RemoteStorageError: something could not be asked.
        """
        if self._config is None:
            return "without --config the broker's claim on the store is unknown: give it"
        cluster = look(self._session.client)
        topic = cluster.topics.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            return f"there is no topic {REMOTE_LOG_METADATA_TOPIC} any more"
        self._leaders = topic.leaders
        for node_id, address in sorted(cluster.brokers.items()):
            manager = broker_setting(self._session.client, address, node_id, MANAGER_KEY)
            if manager not in OURS:
                return why_other_manager(node_id, manager)
        return self._why_not_ours(self._config, cluster.cluster_id)

    def why_kept(self, partition: TopicIdPartition) -> str | None:
        """Why an orphan of this partition stays; as of the last `why_refused`."""
        assert self._config is not None, "nothing was refused"
        number = metadata_partition_for(partition, len(self._leaders))
        leader = self._leaders.get(number, -1)
        if leader == self._config.node_id:
            return None
        place = f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
        if leader < 0:
            return f"{place}, which has its metadata, has no leader"
        return (
            f"broker {leader} leads {place}, which has its metadata, and its claim on the store is"
            " not known here: run this on its machine with its --config"
        )

    def _why_not_ours(self, config: BrokerConfig, cluster_id: str) -> str | None:
        if not isinstance(self._storage, ClaimKeeper):
            return "the storage plugin keeps no claims: these directories may be an older copy"
        try:
            found = self._storage.read_claim(cluster_id, config.node_id)
        except RemoteObjectDamagedError as error:
            return f"the store's claim of broker {config.node_id} is damaged: {error}"
        # After the store: what is written there was noted in the file before.
        path = config.metadata_log_dir / FILE_NAME
        return why_not_ours(config.node_id, found, read(Disk(), path), str(path))


def why_other_manager(node_id: int, manager: str | None) -> str:
    """The sentence for a broker whose metadata manager is not ours, or unknown."""
    return (
        f"broker {node_id} has {MANAGER_KEY}={manager or '(unknown)'}: {REMOTE_LOG_METADATA_TOPIC}"
        " does not know what that manager's brokers have copied"
    )


def why_not_ours(node_id: int, found: int | None, known: Counter, path: str) -> str | None:
    """Why the store's claim does not show that these files are the right ones; None: it does.

    Stricter than the tier's `validate`: a claim that is missing, or lower and unknown, is not
    enough.

    Args:
        node_id: the broker.
        found: the store's claim.
        known: what its files have noted.
        path: of that file.
    """
    if found is None:
        return (
            f"the store holds no claim of broker {node_id}, so these directories may be an older"
            " copy: it is written when the broker's tier starts"
        )
    if known.claimed is None:
        return (
            f"{path} holds no claim: run this on the machine of broker {node_id}, whose tier must"
            " have taken its claim"
        )
    if found in (*known.before, known.claimed):
        return None
    order = "later than" if found > known.claimed else "none of"
    return (
        f"the store's claim {found} of broker {node_id} is {order} this"
        f" cluster's, whose last one is {known.claimed}: the directories are an older copy, or"
        " another machine writes as this broker, and the orphans may be its data. Put back the"
        " newest directories, or say by `tidemark remote claim` that these are the ones to continue"
        " with"
    )
