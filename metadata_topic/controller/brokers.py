"""Registration of brokers, and their fencing.

A broker registers with every start and is fenced until it says that it caught up with the metadata
log; while fenced it leads nothing. Its epoch is the offset at which its registration is written,
so an older life of the same id is recognised by its lower epoch.
"""

from dataclasses import dataclass, field

from metadata_topic.controller.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
    UnsupportedFeatureError,
)
from metadata_topic.controller.leadership import records_for_leaving, records_for_returning
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, ControllerImage, Endpoint, RemoteStore
from metadata_topic.image.records import (
    CONTROLLER_REGISTRATION_LEVEL,
    MetadataRecord,
    make,
    partition_record_version,
)
from metadata_topic.image.snapshot_records import broker_record, controller_record
from runtime.work import Pace, Steps, stepwise


@dataclass(frozen=True, slots=True)
class Registration:
    """What a node says of itself when it registers, as broker or as controller.

    Attributes:
        incarnation_id: random, made once per process.
        features: what it can do: name to (lowest, highest), both inclusive.
        log_dirs: ids of its online log directories; empty for controllers.
        cordoned_log_dirs: those that take no new replicas.
        keeps_directories: replicas are served only after their directory was committed, see
            `directories`.
        remote_store: of a broker's remote tier; None: it is off.
    """

    node_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    rack: str | None = None
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] = ()
    keeps_directories: bool = False
    remote_store: RemoteStore | None = None


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Find a broker and make sure that its current life is speaking.

    Raises:
        BrokerIdNotRegisteredError: there is no such broker.
        StaleBrokerEpochError: another epoch is registered.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegisteredError(f"No broker with id {broker_id} is registered.")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpochError(
            f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {broker_epoch}."
        )
    return broker


@stepwise
def register_broker(
    image: MetadataImage, registration: Registration, *, has_live_session: bool = False
) -> Steps[ControllerResult[int]]:
    """Register a broker, fenced, in steps; whatever its previous life led loses its leader first.

    Args:
        image: the cluster now; the records must be the next ones written after it.
        registration: what the broker says of itself.
        has_live_session: its previous life still sends heartbeats.

    Returns:
        The new broker epoch: the offset of the first record written here.

    Raises:
        DuplicateBrokerRegistrationError: a live broker of another incarnation has the id.
    """
    previous = image.brokers.get(registration.node_id)
    records: list[MetadataRecord] = []
    epoch = image.provenance.end_offset
    same_life = None
    if previous is not None and previous.incarnation_id == registration.incarnation_id:
        same_life = previous  # the same process asks again: it keeps its epoch, and what it leads
        epoch = previous.epoch
    elif previous is not None:
        if has_live_session:
            raise DuplicateBrokerRegistrationError(
                f"Another broker is registered with that broker id: {registration.node_id}"
            )
        records += yield from records_for_leaving(image, registration.node_id)
    broker = BrokerImage(
        id=registration.node_id,
        epoch=epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        fenced=same_life is None or same_life.fenced,
        in_controlled_shutdown=same_life is not None and same_life.in_controlled_shutdown,
        log_dirs=registration.log_dirs,
        cordoned_log_dirs=registration.cordoned_log_dirs,
        directories_assigned_from=_assigned_from(
            previous,
            registration,
            epoch,
            with_directories=partition_record_version(image.metadata_version) >= 1,
        ),
        absent_directories=(yield from _absent(image, previous, registration)),
        remote_store=registration.remote_store,
    )
    records.append(broker_record(broker, image.metadata_version))
    return ControllerResult(tuple(records), epoch)


def _assigned_from(
    previous: BrokerImage | None, registration: Registration, epoch: int, *, with_directories: bool
) -> int:
    if not registration.keeps_directories or not with_directories:
        return -1
    known = -1 if previous is None else previous.directories_assigned_from
    return known if known >= 0 else epoch


def _absent(
    image: MetadataImage, previous: BrokerImage | None, registration: Registration
) -> Steps[tuple[tuple[bytes, bytes], ...]]:
    """Directories that replicas live in and that do not work now, each with its last life.

    One that comes back must name that life, or it is a copy of another time. A life of Apache Kafka
    named itself nowhere.
    """
    keeps = registration.keeps_directories
    if previous is None or not keeps or previous.directories_assigned_from < 0:
        return ()
    used: set[bytes] = set()
    pace = Pace()
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            if previous.id in partition.replicas:
                used.add(partition.directory_of(previous.id))
            if pace.is_step_over():
                yield
    lives = [(one, previous.last_life_of(one)) for one in used - set(registration.log_dirs)]
    return tuple(sorted((one, life) for one, life in lives if life is not None))


def register_controller(image: MetadataImage, registration: Registration) -> ControllerResult[None]:
    """Register a controller; the same incarnation twice writes nothing.

    Raises:
        InvalidRequestError: the id is none.
        UnsupportedFeatureError: `metadata.version` is older than registrations of controllers.
    """
    if registration.node_id < 0:
        raise InvalidRequestError(f"Controller id {registration.node_id} is negative.")
    if image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        raise UnsupportedFeatureError(
            "The current MetadataVersion is too old to support controller registrations."
        )
    known = image.controllers.get(registration.node_id)
    if known is not None and known.incarnation_id == registration.incarnation_id:
        return ControllerResult((), None)
    controller = ControllerImage(
        id=registration.node_id,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
    )
    return ControllerResult((controller_record(controller),), None)


@stepwise
def unfence_broker(
    image: MetadataImage, *, broker_id: int, broker_epoch: int
) -> Steps[ControllerResult[None]]:
    """Let a broker lead, in steps: elect it wherever there is no leader and it is in sync.

    Raises:
        BrokerIdNotRegisteredError, StaleBrokerEpochError: not this life of this broker.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if not broker.fenced:
        return ControllerResult((), None)
    returning = yield from records_for_returning(image, broker_id)
    return ControllerResult((_fencing(broker, -1), *returning), None)


@stepwise
def fence_broker(
    image: MetadataImage, *, broker_id: int, broker_epoch: int
) -> Steps[ControllerResult[None]]:
    """Take all leadership from a broker, in steps, because it is gone or stops.

    Raises:
        BrokerIdNotRegisteredError, StaleBrokerEpochError: not this life of this broker.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if broker.fenced:
        return ControllerResult((), None)
    leaving = yield from records_for_leaving(image, broker_id)
    return ControllerResult((*leaving, _fencing(broker, 1)), None)


@stepwise
def begin_controlled_shutdown(
    image: MetadataImage, *, broker_id: int, broker_epoch: int
) -> Steps[ControllerResult[None]]:
    """Move leadership away from a broker that is about to stop, in steps, before it stops.

    Raises:
        BrokerIdNotRegisteredError, StaleBrokerEpochError: not this life of this broker.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if broker.in_controlled_shutdown:
        return ControllerResult((), None)
    record = make(
        "BrokerRegistrationChangeRecord",
        1,
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        in_controlled_shutdown=1,
    )
    leaving = yield from records_for_leaving(image, broker_id)
    return ControllerResult((record, *leaving), None)


def _fencing(broker: BrokerImage, fenced: int) -> MetadataRecord:
    return make(
        "BrokerRegistrationChangeRecord",
        0,
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
    )
