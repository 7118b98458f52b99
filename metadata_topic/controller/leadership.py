"""What becomes of partitions when brokers and their log directories come and go.

The leader epoch of a partition rises when its leader goes (to -1 or to another) and again when one
comes back: a single broker's restart costs two epochs, as in Kafka, so epoch chains are real.

A replica whose log directory is not there leaves ISR and ELR in the append that says so: nothing
tells the controller what the directory holds when it is back. The last one that has all committed
records keeps its place, and leads once its directory is registered again; until then the partition
has no leader. docs/decisions/the-last-copy.md has the reasons.
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
    """What a decision says of a broker, and the image does not yet.

    Attributes:
        then: the broker after the decision.
        leaves: it is in no ISR any more.
        ended_uncleanly: its incarnation before this one may have lost what it had not flushed.
        moved: replicas that are in another log directory than the image says.
        refused: replicas whose files cannot be used.
    """

    then: BrokerImage
    leaves: bool = False
    ended_uncleanly: bool = False
    moved: Mapping[ReplicaId, bytes] = field(default_factory=lambda: _NOWHERE)
    refused: Collection[ReplicaId] = ()


def records_for_broker(
    image: MetadataImage, news: BrokerNews, defaults: ElectionRules
) -> Steps[list[MetadataRecord]]:
    """Decide on all partitions that have a replica on a broker, in steps.

    A broker that is active then is elected where nobody leads, as far as it may be.
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
            if pace.is_step_over(RECORD_WORK):  # to decide takes long, also where nothing changes
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
    # and is then elected uncleanly. No other one could have more: those that are being added count
    # once one of them has been in sync.
    has_less = news.ended_uncleanly and len(old.replicas) - len(old.joining) > 1
    if has_less or (is_away and has_other_copies(old, broker_id)):
        return decide(old, wanted, electorate, rules, ineligible=(broker_id,))
    return decide(old, wanted, electorate, rules)
