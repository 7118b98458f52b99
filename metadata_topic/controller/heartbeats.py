"""What a broker's heartbeat changes: it is unfenced, fenced, or led through its shutdown.

| the broker is | it wants | then |
|---|---|---|
| fenced | to stop | it may stop at once |
| fenced | to serve, and has read its registration | unfenced |
| unfenced | to be fenced | fenced; may stop at once if it wants that, too |
| unfenced | to stop, and leads something | controlled shutdown: others take over |
| unfenced | to stop, and leads nothing | fenced, may stop at once |
| stopping | anything | once the other brokers have read who leads now: fenced, may stop |

Source: KIP-631; Kafka's BrokerHeartbeatManager.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from metadata_topic.controller.broker_sessions import BrokerSession
from metadata_topic.controller.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    unfence_broker,
)
from metadata_topic.controller.errors import StaleBrokerEpochError
from metadata_topic.controller.free_descriptors import NOT_REPORTED
from metadata_topic.controller.leadership import records_for_leaving
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage
from metadata_topic.image.records import MetadataRecord, make, partition_record_version
from runtime.work import Pace, Steps, stepwise


def newly_offline(
    image: MetadataImage, broker: BrokerImage, directory_ids: Sequence[bytes]
) -> tuple[bytes, ...]:
    """Which directories are registered as working and named here as offline."""
    if partition_record_version(image.metadata_version) < 1:
        return ()
    return tuple(one for one in broker.log_dirs if one in directory_ids)


def offline_records(
    image: MetadataImage, broker: BrokerImage, offline: Sequence[bytes], *, has_left: bool
) -> Steps[tuple[MetadataRecord, ...]]:
    """Take directories out of a registration, in steps, and the broker out of what lived in them.

    Args:
        image: the cluster now.
        broker: whose directories they are.
        offline: at least one, see `newly_offline`.
        has_left: records before these take the broker out of everything.
    """
    left: list[MetadataRecord] = []
    if not has_left:
        left = yield from records_for_leaving(image, broker.id, frozenset(offline))
    record = make(
        "BrokerRegistrationChangeRecord",
        2,
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=[one for one in broker.log_dirs if one not in offline],
    )
    return (*left, record)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a broker says.

    Attributes:
        metadata_offset: how far (inclusive) it has read the metadata log.
        offline_log_dirs: ids of its log directories that failed.
        free_descriptors: files it may open before it uses its reserve; -1: it does not say.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    free_descriptors: int = NOT_REPORTED


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What the broker hears.

    Attributes:
        is_caught_up: it has read its own registration.
        in_controlled_shutdown: not in the answer on the wire.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False
    in_controlled_shutdown: bool = False


class BrokerState(Enum):
    """What a broker is to the controller."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    STOPPING = "in controlled shutdown"
    MAY_STOP = "may stop"


def check_heartbeat(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Find the broker whose current life is speaking.

    Raises:
        StaleBrokerEpochError: it is not registered under this epoch, or not at all.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpochError(f"Broker {broker_id} sent a heartbeat and is not registered.")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpochError(
            f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {broker_epoch}."
        )
    return broker


@stepwise
def heartbeat(
    image: MetadataImage,
    asked: Heartbeat,
    session: BrokerSession,
    lowest_active_offset: Callable[[], int | None],
) -> Steps[ControllerResult[HeartbeatAnswer]]:
    """Decide on a heartbeat, in steps.

    Args:
        image: the cluster now.
        asked: what the broker says.
        session: of this life of it.
        lowest_active_offset: says how far (inclusive) the other active brokers have read; None if
            there is none. It looks at all of them, so only a broker that stops asks.

    Raises:
        StaleBrokerEpochError: not this life of this broker.
    """
    broker = check_heartbeat(image, asked.broker_id, asked.broker_epoch)
    is_caught_up = asked.metadata_offset >= session.registered_at
    now = _state(broker, session)
    leads = False
    if now is BrokerState.UNFENCED and asked.want_shut_down and not asked.want_fence:
        leads = yield from _leads_something(image, broker.id)
    then = _next_state(now, asked, session, lowest_active_offset, leads=leads)
    offline = newly_offline(image, broker, asked.offline_log_dirs)
    if offline and now is BrokerState.FENCED and then is BrokerState.UNFENCED:
        then = now  # first its directories, so that it is elected for nothing that lives in them
    records: tuple[MetadataRecord, ...] = ()
    if then is not now:
        names = {"broker_id": broker.id, "broker_epoch": broker.epoch}
        if then is BrokerState.UNFENCED:
            records = (yield from unfence_broker.steps(image, **names)).records
        elif then is BrokerState.STOPPING:
            records = (yield from begin_controlled_shutdown.steps(image, **names)).records
        else:
            records = (yield from fence_broker.steps(image, **names)).records
    if offline:
        has_left = then is not now and then is not BrokerState.UNFENCED
        lost = yield from offline_records(image, broker, offline, has_left=has_left)
        records = (*records, *lost)
    answer = HeartbeatAnswer(
        is_caught_up,
        is_fenced=then in (BrokerState.FENCED, BrokerState.MAY_STOP),
        should_shut_down=then is BrokerState.MAY_STOP,
        in_controlled_shutdown=then is BrokerState.STOPPING,
    )
    return ControllerResult(records, answer)


def _state(broker: BrokerImage, session: BrokerSession) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.UNFENCED if session.shutdown_offset < 0 else BrokerState.STOPPING


def _next_state(
    now: BrokerState,
    asked: Heartbeat,
    session: BrokerSession,
    lowest_active_offset: Callable[[], int | None],
    *,
    leads: bool,
) -> BrokerState:
    if now is BrokerState.STOPPING:
        lowest = lowest_active_offset()
        others_know = lowest is None or session.shutdown_offset <= lowest
        return BrokerState.MAY_STOP if others_know else now
    if asked.want_shut_down:
        stays = now is BrokerState.UNFENCED and leads and not asked.want_fence
        return BrokerState.STOPPING if stays else BrokerState.MAY_STOP
    if asked.want_fence:
        return BrokerState.FENCED
    if now is BrokerState.FENCED and asked.metadata_offset < session.registered_at:
        return BrokerState.FENCED
    return BrokerState.UNFENCED


def _leads_something(image: MetadataImage, broker_id: int) -> Steps[bool]:
    pace = Pace()
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            if partition.leader == broker_id:
                return True
            if pace.is_step_over():
                yield
    return False
