"""Values of the cluster metadata: one immutable type for each thing that has records.

Ids of topics, directories and incarnations are 16 raw bytes. Sequences are tuples, so images and
threads share a value without a copy.

Topics and partitions are many and long-lived. They are structs that the garbage collector does not
track, since they are in no cycle. Otherwise each full collection would hold the event loop for
100 ms at 100,000 partitions. Change one with `msgspec.structs.replace`.
100,000 partitions. Change one with `msgspec.structs.replace`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import ZERO_UUID

NO_LEADER = -1

RECOVERED = 0
RECOVERING = 1

# Reserved directory ids (KIP-858): a real directory never has them.
DIRECTORY_MIGRATING = ZERO_UUID
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
DIRECTORY_LOST = bytes(15) + b"\x02"

_SPARE_PREFIX = b"tidemark"


def spare_directory(first: bytes) -> bytes:
    """Return an id that a broker registers beside its directories; no directory has it.

    Kafka's controllers assign the directory of a new replica themselves if the broker has only one,
    from the start or after others failed. Then a replica whose files were lost could not be
    distinguished from one that never had any; see docs/decisions/where-a-replica-lives.md.
    Directory ids are random UUIDs of version 4, which never have this prefix.
    """
    return _SPARE_PREFIX + first[len(_SPARE_PREFIX) :]


def is_spare_directory(directory_id: bytes) -> bool:
    """True if an id is one of `spare_directory`."""
    return directory_id.startswith(_SPARE_PREFIX)


class BrokenMetadataLogError(TidemarkError):
    """A committed record contradicts the records before it. Fatal."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Position in the metadata log up to which an image has all records.

    Attributes:
        offset: Last record contained (inclusive); -1 for the empty image.
        epoch: Leader epoch of that record.
        timestamp_ms: Append time of its batch.
    """

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1

    @property
    def end_offset(self) -> int:
        """First offset not contained (exclusive end)."""
        return self.offset + 1


class PartitionImage(msgspec.Struct, frozen=True, gc=False):
    """One partition, as the controller decided it.

    Attributes:
        replicas: Broker ids; the first is the preferred leader.
        isr: Broker ids in sync; without ELR empty only if the last member's log directory was
            forgotten.
        leader: Broker id or -1.
        leader_epoch: Rises with every leader change, also to and from -1.
        partition_epoch: Rises with every change of any field.
        directories: Directory id of each replica, aligned with `replicas`.
        removing, adding: Replicas that a reassignment removes, and those that it has added.
        elr: Eligible leader replicas (KIP-966); empty while that feature is off.
        unclean_epoch: Leader epoch of the unclean election that the leader has not recovered from;
            -1: none. Replay derives it; snapshots keep it in a tagged field that Kafka skips.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    unclean_epoch: int = -1

    @property
    def joining(self) -> tuple[int, ...]:
        """Replicas being added, see `joining_replicas`."""
        return joining_replicas(self.adding, self.isr, self.elr)

    def directory_of(self, broker_id: int) -> bytes:
        """Return the id of the log directory of the replica on `broker_id`.

        Returns:
            A directory id; DIRECTORY_MIGRATING if no record ever named one.

        Raises:
            ValueError: `broker_id` is no replica.
        """
        index = self.replicas.index(broker_id)
        return self.directories[index] if index < len(self.directories) else DIRECTORY_MIGRATING


def joining_replicas(
    adding: tuple[int, ...], isr: Iterable[int], elr: Iterable[int]
) -> tuple[int, ...]:
    """Replicas being added, until one of them is eligible to lead; then an empty tuple.

    While they are joining they do not count for min.insync.replicas.
    """
    return () if {*adding} & {*isr, *elr} else adding


class TopicImage(msgspec.Struct, frozen=True, gc=False):
    """A topic and its partitions by index. Never change `partitions`.

    Attributes:
        was_tiered: A config once made it tiered: the remote store may have data of it.
    """

    name: str
    id: bytes
    partitions: dict[int, PartitionImage]
    was_tiered: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of one listener of a node.

    Attributes:
        security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class RemoteStore:
    """Store of a broker's remote tier; tiers with equal values have the same remote segments.

    Attributes:
        class_name: Of the storage plugin, `module:Class`.
        place_hash: SHA-256 of the class and the place of the store, see `rsm_plugins.place`.
    """

    class_name: str
    place_hash: bytes


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker.

    Attributes:
        epoch: Offset of its RegisterBrokerRecord; requests with a lower one are fenced.
        incarnation_id: Random, one per process.
        features: Supported levels by feature: (lowest, highest), both inclusive.
        log_dirs: Ids of its online log directories.
        directories_assigned_from: From this offset (inclusive) on, a replica of this broker is
            served only after its directory was committed. Its directories also have sidecar files
            and the history of incarnations. -1 for a broker without these (Apache Kafka).
        absent_directories: Directories assigned to its replicas and missing from `log_dirs`: id,
            and id of the incarnation that last used it.
        remote_store: None if the tier is off, or for a broker of Apache Kafka.

    The last three are tagged fields that Kafka skips.
    """

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    directories_assigned_from: int = -1
    absent_directories: tuple[tuple[bytes, bytes], ...] = ()
    remote_store: RemoteStore | None = None

    @property
    def is_active(self) -> bool:
        """True if it may lead partitions and take new replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def last_incarnation_of(self, directory_id: bytes) -> bytes | None:
        """Id of the incarnation that last used a directory; None if unknown."""
        if directory_id in self.log_dirs:
            return self.incarnation_id
        return dict(self.absent_directories).get(directory_id)

    def works_with(self, directory_id: bytes) -> bool:
        """True if a replica in that directory can be online: Kafka's `hasOnlineDir`."""
        if directory_id == DIRECTORY_LOST:
            return False
        if not self.log_dirs or directory_id in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED):
            return True
        return directory_id in self.log_dirs

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The endpoint of a listener, None if the broker does not have it."""
        return next((e for e in self.endpoints if e.name == listener_name), None)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A registered controller (KIP-919)."""

    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    zk_migration_ready: bool = False
