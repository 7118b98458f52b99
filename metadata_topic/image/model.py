"""What the cluster metadata consists of: immutable values, one for each thing that has records.

Ids of topics, directories and incarnations are 16 raw bytes. Sequences are tuples, so that a value
can be shared between images and threads without a copy.

Topics and partitions are many, and live long. They are structs that the garbage collector does not
know (they are in no cycle): else each of its full passes would hold the event loop for 100 ms at
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

# Directory ids with a meaning of their own (KIP-858): a real directory never has them.
DIRECTORY_MIGRATING = ZERO_UUID
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
DIRECTORY_LOST = bytes(15) + b"\x02"

_SPARE_PREFIX = b"tidemark"


def spare_directory(first: bytes) -> bytes:
    """An id for a broker to register beside its directories; none of them has it.

    Kafka's controllers assign the directory of a new replica by themselves where the broker has
    one alone, from the start or when the others have failed. Then nothing would tell a replica
    whose files were lost from one that never had any; see docs/decisions/where-a-replica-lives.md.
    Ids of directories are random UUIDs of version 4, which never begin like this.
    """
    return _SPARE_PREFIX + first[len(_SPARE_PREFIX) :]


def is_spare_directory(directory_id: bytes) -> bool:
    """Whether an id is one of `spare_directory`."""
    return directory_id.startswith(_SPARE_PREFIX)


class BrokenMetadataLogError(TidemarkError):
    """A committed record contradicts the records before it. Fatal."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Up to where the metadata log is contained in an image.

    Attributes:
        offset: last record contained (inclusive); -1 for the empty image.
        epoch: leader epoch of that record.
        timestamp_ms: append time of its batch.
    """

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1

    @property
    def end_offset(self) -> int:
        """First offset not contained (exclusive end)."""
        return self.offset + 1


class PartitionImage(msgspec.Struct, frozen=True, gc=False):
    """One partition as the controller decided it.

    Attributes:
        replicas: broker ids; the first is the preferred leader.
        isr: broker ids in sync; without ELR empty only where the last member's log directory was
            forgotten.
        leader: broker id or -1.
        leader_epoch: rises with every leader change, also to and from -1.
        partition_epoch: rises with every change of anything here.
        directories: directory id of each replica, aligned with `replicas`.
        removing, adding: replicas that a reassignment takes out, and that it has added.
        elr: eligible leader replicas (KIP-966); empty while that feature is off.
        unclean_epoch: leader epoch of the unclean election that is not recovered from yet, -1 where
            there is none. Replay derives it; snapshots keep it in a tagged field that Kafka skips.
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
        """See `joining_replicas`."""
        return joining_replicas(self.adding, self.isr, self.elr)

    def directory_of(self, broker_id: int) -> bytes:
        """Say in which log directory of `broker_id` the replica lives.

        Returns:
            A directory id; DIRECTORY_MIGRATING if none was ever written.

        Raises:
            ValueError: `broker_id` is no replica.
        """
        index = self.replicas.index(broker_id)
        return self.directories[index] if index < len(self.directories) else DIRECTORY_MIGRATING


def joining_replicas(
    adding: tuple[int, ...], isr: Iterable[int], elr: Iterable[int]
) -> tuple[int, ...]:
    """Replicas that are being added, as long as none of them may lead without loss.

    Until then none of them counts for min.insync.replicas.
    """
    return () if {*adding} & {*isr, *elr} else adding


class TopicImage(msgspec.Struct, frozen=True, gc=False):
    """A topic and its partitions, keyed by partition index. Never change `partitions`.

    Attributes:
        was_tiered: its configs once said that it is: the remote store may hold something of it.
    """

    name: str
    id: bytes
    partitions: dict[int, PartitionImage]
    was_tiered: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a node listens.

    Attributes:
        security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class RemoteStore:
    """The store of a broker's remote tier. Tiers with equal ones are alike: they hold the same.

    Attributes:
        class_name: of the storage plugin, `module:Class`.
        place_hash: SHA-256 over the class and the place of the store, see `rsm_plugins.place`.
    """

    class_name: str
    place_hash: bytes


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker.

    Attributes:
        epoch: offset of its RegisterBrokerRecord; fences what an older incarnation of it says.
        incarnation_id: random, made once per process.
        features: what it can do: name to (lowest, highest), both inclusive.
        log_dirs: ids of its online log directories.
        directories_assigned_from: from this offset on a replica of this broker is served only after
            its directory was committed, and the broker keeps sidecars and lives in its directories;
            -1 for a broker that does not (Apache Kafka).
        absent_directories: directories that replicas of it are assigned to and that are not in
            `log_dirs`: their ids, and the incarnation id of the last incarnation they took part in.
        remote_store: of its remote tier; None: the tier is off, or it is Apache Kafka's broker.

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
        """Whether it may lead partitions and take new replicas."""
        return not self.fenced and not self.in_controlled_shutdown

    def last_incarnation_of(self, directory_id: bytes) -> bytes | None:
        """Incarnation id of the last incarnation that worked with a directory.

        None if none is known.
        """
        if directory_id in self.log_dirs:
            return self.incarnation_id
        return dict(self.absent_directories).get(directory_id)

    def works_with(self, directory_id: bytes) -> bool:
        """Whether a replica in that log directory can be there: as Kafka's `hasOnlineDir`."""
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
