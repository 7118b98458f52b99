"""Effects of a broker's heartbeat: unfencing, fencing, and the steps of its shutdown.

| state of the broker | request | effect |
|---|---|---|
| fenced | to stop | it may stop at once |
| fenced | to serve, and has read its registration | unfenced |
| unfenced | to be fenced | fenced; may stop at once if it wants that, too |
| unfenced | to stop, and leads something | controlled shutdown: other brokers take over |
| unfenced | to stop, and leads nothing | fenced, may stop at once |
| stopping | any | once all other brokers have read the new leaders: fenced, may stop |

Source: KIP-631; Kafka's BrokerHeartbeatManager.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from metadata_topic.controller.broker_sessions import BrokerSession, check_broker_epoch
from metadata_topic.controller.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    lose_directories,
    unfence_broker,
)
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules
from metadata_topic.controller.free_descriptors import NOT_REPORTED
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage
from metadata_topic.image.records import MetadataRecord, partition_record_version
from runtime.work import Pace, Steps, stepwise


def newly_offline(
    image: MetadataImage, broker: BrokerImage, directory_ids: Sequence[bytes]
) -> tuple[bytes, ...]:
    """Ids of directories that are registered as working and reported as offline."""
    if partition_record_version(image.metadata_version) < 1:
        return ()
    return tuple(one for one in broker.log_dirs if one in directory_ids)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat request of a broker.

    Attributes:
        metadata_offset: Last offset (inclusive) of the metadata log that it has read.
        offline_log_dirs: Ids of its failed log directories.
        free_descriptors: Files it may open before it uses its reserve; -1 if not reported.
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
    """Heartbeat response to the broker.

    Attributes:
        is_caught_up: It has read its own registration record.
        in_controlled_shutdown: Kept here, not sent on the wire.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False
    in_controlled_shutdown: bool = False


class BrokerState(Enum):
    """State of a broker at the controller."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    STOPPING = "in controlled shutdown"
    MAY_STOP = "may stop"


@stepwise
def heartbeat(
    image: MetadataImage,
    asked: Heartbeat,
    session: BrokerSession,
    lowest_active_offset: Callable[[], int | None],
    *,
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[HeartbeatAnswer]]:
    """Decide on a heartbeat, in steps.

    Args:
        image: The cluster now.
        asked: The heartbeat.
        session: Of the incarnation that sent it.
        lowest_active_offset: Lowest offset (inclusive) that the other active brokers have read;
            None without others. It visits all of them, so it is called only for a stopping broker.
        defaults: Election settings in the properties of this controller.

    Raises:
        StaleBrokerEpochError: The broker is not registered under this epoch.
    """
    broker = check_broker_epoch(image, asked.broker_id, asked.broker_epoch)
    is_caught_up = asked.metadata_offset >= session.registered_at
    now = _state(broker, session)
    leads = False
    if now is BrokerState.UNFENCED and asked.want_shut_down and not asked.want_fence:
        leads = yield from _leads_something(image, broker.id)
    then = _next_state(now, asked, session, lowest_active_offset, leads=leads)
    offline = newly_offline(image, broker, asked.offline_log_dirs)
    if offline and now is BrokerState.FENCED and then is BrokerState.UNFENCED:
        then = now  # first its directories, so that no replica in them is elected
    records: tuple[MetadataRecord, ...] = ()
    names = {"broker_id": broker.id, "broker_epoch": broker.epoch}
    if then is BrokerState.UNFENCED and then is not now:
        records = (yield from unfence_broker.steps(image, **names, defaults=defaults)).records
    elif then is not now:
        leave = begin_controlled_shutdown if then is BrokerState.STOPPING else fence_broker
        left = yield from leave.steps(image, **names, offline=offline, defaults=defaults)
        records = left.records
    if offline and not records:
        lost = yield from lose_directories.steps(image, broker, offline, defaults=defaults)
        records = lost.records
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
