"""Removal of a broker that will not come back from the cluster.

Its RegisterBrokerRecord is the only record of the incarnations that used its log directories.
Without it an old copy of a lost directory would be served as the original. So a broker that still
has replicas stays registered.

Source: Kafka's ReplicationControlManager.unregisterBroker, which requires only the id.
"""

from typing import Final

from metadata_topic.controller.errors import BrokerIdNotRegisteredError, PolicyViolationError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from runtime.work import Pace, Steps, stepwise

_NAMED_MAX: Final = 3


@stepwise
def unregister_broker(image: MetadataImage, *, broker_id: int) -> Steps[ControllerResult[None]]:
    """Unregister a broker, in steps.

    DIFFERS: Kafka unregisters also a running broker, which then continues outside of the cluster,
    and one with replicas, on the assumption that others have their records.

    Raises:
        BrokerIdNotRegisteredError: No broker has this id.
        PolicyViolationError: It is not fenced, or it has replicas.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegisteredError(f"Broker ID {broker_id} is not currently registered")
    if not broker.fenced:
        raise PolicyViolationError(
            f"Broker {broker_id} serves and cannot be unregistered. Stop it; one that was killed "
            "counts as stopped when its session is over (broker.session.timeout.ms)."
        )
    hosted = yield from _topics_on(image, broker_id)
    if hosted:
        more = len(hosted) - _NAMED_MAX
        names = ", ".join(hosted[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        raise PolicyViolationError(
            f"Broker {broker_id} has replicas of topics ({names}) and cannot be unregistered: what "
            "proves its log directories would be gone. Give them other replicas "
            f"(tidemark brokers drain {broker_id}), delete these topics, or start it again."
        )
    record = make("UnregisterBrokerRecord", broker_id=broker_id, broker_epoch=broker.epoch)
    return ControllerResult((record,), None)


def _topics_on(image: MetadataImage, broker_id: int) -> Steps[list[str]]:
    """Names of the topics with a replica on a broker, sorted."""
    names: list[str] = []
    pace = Pace()
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            if pace.is_step_over():
                yield
            if broker_id in partition.replicas:
                names.append(topic.name)
                break
    names.sort()
    return names
