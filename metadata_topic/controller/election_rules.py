"""Election settings of a topic, as the controller resolves them.

A setting of the topic overrides the cluster-wide default, which overrides the properties of the
active controller. Settings of single brokers are ignored, as in Kafka: a partition has replicas on
several brokers.
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
    """Election settings of a topic's partitions, or the defaults of the controller.

    Attributes:
        min_isr: `min.insync.replicas`; for a topic at most its replication factor.
        is_unclean: A replica that lacks committed records may lead if no other can.
    """

    min_isr: int = 1
    is_unclean: bool = False


DEFAULT_RULES: Final = ElectionRules()


def rules_of(image: MetadataImage, topic: TopicImage, defaults: ElectionRules) -> ElectionRules:
    """Resolve the rules of a topic that has at least one partition.

    DIFFERS: `__remote_log_metadata` never elects an unclean leader by itself. The lost records
    would be the only trace of segments in the store whose local copies are gone.

    Args:
        image: The cluster now.
        topic: Of the image.
        defaults: From the properties of the active controller.
    """
    cluster = _laid_over(image.broker_config(None), defaults)
    own = _laid_over(image.topic_config(topic.name), cluster)
    # As in Kafka the first partition gives the replication factor.
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
    """Parse a config value; a value that is no number (of another version) gives `otherwise`."""
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise
