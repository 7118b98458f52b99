"""Registration and fencing of brokers.

A broker registers at every start. It stays fenced, and leads nothing, until it reports that it
caught up with the metadata log. Its broker epoch is the offset of its registration record, so an
older incarnation of the same id has a lower epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from metadata_topic.controller.broker_sessions import check_broker_epoch
from metadata_topic.controller.directories import (
    NOTHING_FOUND,
    FoundReplicas,
    directories_record,
    moved_at_registration,
    remaining_directories,
)
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules
from metadata_topic.controller.errors import (
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from metadata_topic.controller.leadership import BrokerNews, records_for_broker
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
    """Registration request of a node, as broker or as controller.

    Attributes:
        incarnation_id: Random, one per process.
        features: Supported levels by feature: (lowest, highest), both inclusive.
        log_dirs: Ids of its online log directories; empty for controllers.
        cordoned_log_dirs: Directories that take no new replicas.
        keeps_directories: The broker serves a replica only after its directory was committed, see
            `directories`.
        remote_store: Of the broker's remote tier; None if the tier is off.
        previous_epoch: Epoch of the broker's previous incarnation if it shut down cleanly; -1 if
            it did not, or if that is unknown.
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
    previous_epoch: int = -1


@stepwise
def register_broker(
    image: MetadataImage,
    registration: Registration,
    *,
    has_live_session: bool = False,
    found: FoundReplicas = NOTHING_FOUND,
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[int]]:
    """Register a broker, fenced, in steps.

    The partitions that its previous incarnation led lose their leader first. A replica whose log
    directory is not registered leaves ISR and ELR. A replica `found` in another directory is
    assigned to it in the same append, before the broker can be elected for it.

    Args:
        image: The cluster now; the records must be the next ones written after it.
        registration: Request of the broker.
        has_live_session: The session of its previous incarnation has not expired.
        found: Replicas found on its disks.
        defaults: Election settings in the properties of this controller.

    Returns:
        The new broker epoch: the offset of the first record written here.

    Raises:
        DuplicateBrokerRegistrationError: Another incarnation of this id is live.
    """
    previous = image.brokers.get(registration.node_id)
    epoch = image.provenance.end_offset
    same_life = None
    if previous is not None and previous.incarnation_id == registration.incarnation_id:
        same_life = previous  # the same process asks again: it keeps its epoch and its leaderships
        epoch = previous.epoch
    elif has_live_session:
        raise DuplicateBrokerRegistrationError(
            f"Another broker is registered with that broker id: {registration.node_id}"
        )
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
    news = BrokerNews(
        broker,
        leaves=same_life is None,
        ended_uncleanly=same_life is None
        and (previous is None or previous.epoch != registration.previous_epoch),
        moved=(
            yield from moved_at_registration.steps(
                image, broker.id, found, keeps_order=registration.keeps_directories
            )
        ),
        refused=found.refused,
    )
    changes = yield from records_for_broker(image, news, defaults)
    record = broker_record(broker, image.metadata_version)
    return ControllerResult((*changes, record), epoch)


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
    """Offline directories that hold replicas, each with the incarnation that last used it.

    A directory that comes back must name that incarnation; otherwise it is an old copy. Apache
    Kafka writes no incarnation into its directories.

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
    lives = [(one, previous.last_incarnation_of(one)) for one in used - set(registration.log_dirs)]
    return tuple(
        sorted((one, incarnation) for one, incarnation in lives if incarnation is not None)
    )


def register_controller(image: MetadataImage, registration: Registration) -> ControllerResult[None]:
    """Register a controller; writes nothing if this incarnation is registered already.

    Raises:
        InvalidRequestError: The id is negative.
        UnsupportedFeatureError: `metadata.version` is older than controller registrations.
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
    return ControllerResult((controller_record(controller_image(registration)),), None)


def controller_image(registration: Registration) -> ControllerImage:
    """Return the controller as it is in the metadata after its registration."""
    return ControllerImage(
        id=registration.node_id,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
    )


@stepwise
def unfence_broker(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[None]]:
    """Unfence a broker, in steps; elect it for leaderless partitions if eligible.

    Raises:
        StaleBrokerEpochError: The broker is not registered under this epoch.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if not broker.fenced:
        return ControllerResult((), None)
    news = BrokerNews(replace(broker, fenced=False))
    returning = yield from records_for_broker(image, news, defaults)
    return ControllerResult((_fencing(broker, -1), *returning), None)


@stepwise
def fence_broker(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    offline: Sequence[bytes] = (),
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[None]]:
    """Fence a broker that is gone or stopping, in steps, and move its leaderships away.

    `offline`: registered log directories that failed.

    Raises:
        StaleBrokerEpochError: Not this incarnation of this broker.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if broker.fenced:
        return ControllerResult((), None)
    then = replace(broker, fenced=True)
    leaving = yield from _records_of_leaving(image, then, offline, defaults)
    return ControllerResult((*leaving, _fencing(broker, 1)), None)


@stepwise
def begin_controlled_shutdown(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    offline: Sequence[bytes] = (),
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[None]]:
    """Move leadership away from a broker that is about to stop, in steps, before it stops.

    `offline` as for `fence_broker`.

    Raises:
        StaleBrokerEpochError: Not this incarnation of this broker.
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
    then = replace(broker, in_controlled_shutdown=True)
    leaving = yield from _records_of_leaving(image, then, offline, defaults)
    return ControllerResult((record, *leaving), None)


@stepwise
def lose_directories(
    image: MetadataImage,
    broker: BrokerImage,
    offline: Sequence[bytes],
    *,
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[None]]:
    """Remove log directories from a broker's registration, and its replicas there from ISRs.

    Args:
        image: The cluster now.
        broker: Owner of the directories.
        offline: The directories to remove, at least one of them registered.
        defaults: Election settings in this controller's properties.

    Returns:
        The records, made in steps.
    """
    then = replace(broker, log_dirs=remaining_directories(broker, offline))
    lost = yield from records_for_broker(image, BrokerNews(then), defaults)
    return ControllerResult((*lost, directories_record(broker, offline)), None)


def _records_of_leaving(
    image: MetadataImage, then: BrokerImage, offline: Sequence[bytes], defaults: ElectionRules
) -> Steps[list[MetadataRecord]]:
    lost = [directories_record(then, offline)] if offline else []
    if offline:
        then = replace(then, log_dirs=remaining_directories(then, offline))
    news = BrokerNews(then, leaves=True)
    return [*(yield from records_for_broker(image, news, defaults)), *lost]


def _fencing(broker: BrokerImage, fenced: int) -> MetadataRecord:
    return make(
        "BrokerRegistrationChangeRecord",
        0,
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
    )
