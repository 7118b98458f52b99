"""What a topic's settings say of its elections, as the controller resolves them.

A topic's own setting counts before the cluster-wide default, and that before what stands in the
properties of the active controller. Settings of single brokers do not count, as in Kafka: a
partition has replicas on several of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import TopicImage

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """How the partitions of a topic elect; of no topic: what the controller's properties say.

    Attributes:
        min_isr: `min.insync.replicas`; of a topic at most the number of its replicas.
        is_unclean: a replica that lacks records may lead where no other can.
    """

    min_isr: int = 1
    is_unclean: bool = False


DEFAULT_RULES: Final = ElectionRules()


def rules_of(image: MetadataImage, topic: TopicImage, defaults: ElectionRules) -> ElectionRules:
    """Resolve the rules of a topic that has partitions.

    DIFFERS: `__remote_log_metadata` never elects an unclean leader by itself: what it would forget
    lies in the store, and the local segments are gone.

    Args:
        image: the cluster now.
        topic: of the image.
        defaults: what the properties of the active controller say.
    """
    cluster = _laid_over(image.broker_config(None), defaults)
    own = _laid_over(image.topic_config(topic.name), cluster)
    # As in Kafka the first partition has as many replicas as all shall have.
    replicas = len(next(iter(topic.partitions.values())).replicas)
    is_unclean = own.is_unclean and topic.name != REMOTE_LOG_METADATA_TOPIC
    return ElectionRules(min(own.min_isr, replicas), is_unclean)


def _laid_over(configs: Mapping[str, str], below: ElectionRules) -> ElectionRules:
    min_isr, unclean = configs.get(MIN_ISR), configs.get(UNCLEAN)
    if min_isr is None and unclean is None:
        return below
    is_unclean = below.is_unclean if unclean is None else unclean.strip().lower() == "true"
    return ElectionRules(number_in(min_isr, below.min_isr), is_unclean)


def number_in(text: str | None, otherwise: int) -> int:
    """The number in a value; one that another version wrote may be none, which ends nothing."""
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise
