"""Leadership and ISR changes when brokers and their log directories come and go.

The leader epoch of a partition rises when its leader goes (to -1 or to another) and again when a
leader comes back. So a restart of a single broker costs two epochs, as in Kafka.

A replica in a missing log directory leaves ISR and ELR in the append that reports it. The
controller cannot see the content of a directory that comes back. The last replica with all
committed records keeps its place, and leads once its directory is registered again. Until then the
partition has no leader. Reasons: docs/decisions/the-last-copy.md.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import ElectionRules, rules_of
from metadata_topic.controller.partition_change import (
    Electorate,
    change_records,
    decide,
    has_other_copies,
    in_directory,
    without,
)
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, BrokerImage, PartitionImage
from metadata_topic.image.records import RECORD_WORK, MetadataRecord
from runtime.work import Pace, Steps

_NOWHERE: Final[Mapping[ReplicaId, bytes]] = {}


@dataclass(frozen=True, slots=True)
class BrokerNews:
    """Change of a broker by a decision, before it is in the image.

    Attributes:
        then: The broker after the decision.
        leaves: It leaves every ISR.
        ended_uncleanly: Its previous incarnation may have lost unflushed records.
        moved: New log directory of replicas that are not in their assigned one.
        refused: Replicas with unusable files.
    """

    then: BrokerImage
    leaves: bool = False
    ended_uncleanly: bool = False
    moved: Mapping[ReplicaId, bytes] = field(default_factory=lambda: _NOWHERE)
    refused: Collection[ReplicaId] = ()


def records_for_broker(
    image: MetadataImage, news: BrokerNews, defaults: ElectionRules
) -> Steps[list[MetadataRecord]]:
    """Decide on all partitions with a replica on a broker, in steps.

    An active broker is elected for leaderless partitions where it is eligible.
    """
    electorate = Electorate(image, news.then)
    broker_id = news.then.id
    records: list[MetadataRecord] = []
    pace = Pace()
    for topic in image.topics_by_id.values():
        rules: ElectionRules | None = None
        for index, old in topic.partitions.items():
            if pace.is_step_over():
                yield
            if broker_id not in old.replicas:
                continue
            replica = ReplicaId(topic.id, index)
            is_member = broker_id in old.isr or broker_id in old.elr
            if not is_member and old.leader != NO_LEADER and replica not in news.moved:
                continue
            if pace.is_step_over(RECORD_WORK):  # a decision takes long, also without a change
                yield
            if rules is None:
                rules = rules_of(image, topic, defaults)
            new = _after_news(old, replica, news, electorate, rules)
            records += change_records(image, topic.id, index, old, new)
    return records


def _after_news(
    old: PartitionImage,
    replica: ReplicaId,
    news: BrokerNews,
    electorate: Electorate,
    rules: ElectionRules,
) -> PartitionImage:
    broker_id = news.then.id
    wanted = in_directory(old, broker_id, news.moved.get(replica))
    is_away = replica in news.refused or not news.then.works_with(wanted.directory_of(broker_id))
    if news.leaves or is_away:
        wanted = without(wanted, broker_id)
    # DIFFERS: in Kafka also the only replica of a partition is not eligible after an unclean end,
    # and is then elected uncleanly. No other replica could have more records. Replicas that are
    # being added count once one of them has been in sync.
    has_less = news.ended_uncleanly and len(old.replicas) - len(old.joining) > 1
    if has_less or (is_away and has_other_copies(old, broker_id)):
        return decide(old, wanted, electorate, rules, ineligible=(broker_id,))
    return decide(old, wanted, electorate, rules)
