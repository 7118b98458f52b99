"""Elections without a failed leader: on request, for balance, and later unclean ones.

| trigger | partitions | elected replica |
|---|---|---|
| ElectLeaders, preferred | those named | the first replica, if in sync and active |
| ElectLeaders, unclean | those named that have no leader | any active one, also a late one |
| leader balance | those whose leader is not the first replica | as for preferred |
| `unclean.leader.election.enable` | without leader, topic allows it | as for unclean |

Source: Kafka 4.3's ReplicationControlManager; KIP-183, KIP-460.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules, rules_of
from metadata_topic.controller.errors import (
    ControllerError,
    InvalidRequestError,
    UnknownTopicError,
)
from metadata_topic.controller.partition_change import (
    Election,
    Electorate,
    change_records,
    decide,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, PartitionImage, TopicImage
from metadata_topic.image.records import RECORD_WORK, MetadataRecord
from metadata_topic.image.replay_topics import merge
from runtime.work import Pace, Steps, stepwise

ELECTIONS_A_DECISION: Final = 1_000
"""Bound of one decision of the controller's own; other decisions run before the next one."""
_ELECTIONS: Final[Mapping[int, Election]] = {0: Election.PREFERRED, 1: Election.ORDERED}
"""Elections by `election_type` of the request."""


class ElectionNotNeededError(ControllerError):
    """The partition already has the requested leader."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class PreferredLeaderNotAvailableError(ControllerError):
    """The first replica is not in sync or not active."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailableError(ControllerError):
    """No replica is active."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@dataclass(slots=True)
class ElectedTopic:
    """Outcome for the partitions of a topic: the error, or None where a leader was elected."""

    name: str
    partitions: list[tuple[int, KafkaError | None]] = field(default_factory=list)


@stepwise
def elect_leaders(
    image: MetadataImage,
    *,
    election_type: int,
    asked: Sequence[tuple[str, Sequence[int]]] | None,
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[list[ElectedTopic]]]:
    """Elect leaders on request, in steps.

    Args:
        image: The cluster now.
        election_type: 0 preferred, 1 unclean, as in the request.
        asked: Topics and partitions; None: all, and the response has only the partitions that
            needed an election.
        defaults: Election settings in the properties of this controller.

    Raises:
        InvalidRequestError: Unknown election type.
    """
    election = _ELECTIONS.get(election_type)
    if election is None:
        raise InvalidRequestError(f"Unknown election type {election_type}")
    electorate = Electorate(image)
    changed: dict[ReplicaId, PartitionImage] = {}
    records: list[MetadataRecord] = []
    response: list[ElectedTopic] = []
    pace = Pace()
    for name, partitions in _everything(image) if asked is None else asked:
        response.append(ElectedTopic(name))
        for index in partitions:
            if pace.is_step_over(RECORD_WORK):
                yield
            try:
                topic, old = _partition(image, name, index)
                replica = ReplicaId(topic.id, index)
                old = changed.get(replica, old)
                rules = rules_of(image, topic, defaults)
                made = _elected(topic, index, old, election, electorate, rules)
            except ElectionNotNeededError as error:
                if asked is not None:
                    response[-1].partitions.append((index, error))
            except KafkaError as error:
                response[-1].partitions.append((index, error))
            else:
                changed[replica] = merge(old, made.value)
                records.append(made)
                response[-1].partitions.append((index, None))
    return ControllerResult(tuple(records), response)


def _everything(image: MetadataImage) -> Iterator[tuple[str, Sequence[int]]]:
    for topic in image.topics_by_id.values():
        yield topic.name, tuple(topic.partitions)


def _partition(image: MetadataImage, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise UnknownTopicError(f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicError(f"No such partition as {name}-{index}")
    return topic, partition


def _is_needed(old: PartitionImage, election: Election) -> bool:
    """True if the partition lacks the leader that this election would give it."""
    if election is Election.PREFERRED:
        return old.leader != old.replicas[0]
    return old.leader == NO_LEADER


def _elected(
    topic: TopicImage,
    index: int,
    old: PartitionImage,
    election: Election,
    electorate: Electorate,
    rules: ElectionRules,
) -> MetadataRecord:
    """Return the record of an election.

    Raises:
        ElectionNotNeededError: The partition has that leader already.
        PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError: No eligible replica.
    """
    if not _is_needed(old, election):
        raise ElectionNotNeededError("Leader election not needed for topic partition.")
    new = decide(old, old, electorate, rules, election=election)
    made = change_records(electorate.image, topic.id, index, old, new)
    if made:
        return made[0]
    if election is Election.PREFERRED:
        raise PreferredLeaderNotAvailableError("The preferred leader was not available.")
    raise EligibleLeadersNotAvailableError("Eligible topic partition leaders are not available.")


@stepwise
def balance_leaders(
    image: MetadataImage, *, defaults: ElectionRules = DEFAULT_RULES
) -> Steps[ControllerResult[bool]]:
    """Elect preferred leaders, in steps; the response: whether more partitions may need it."""
    return (yield from _own_elections(image, Election.PREFERRED, defaults))


@stepwise
def elect_unclean_leaders(
    image: MetadataImage, *, defaults: ElectionRules = DEFAULT_RULES
) -> Steps[ControllerResult[bool]]:
    """Elect leaders, in steps, for leaderless partitions whose topic allows unclean election.

    The response: whether more partitions may need it.
    """
    return (yield from _own_elections(image, Election.UNCLEAN, defaults))


def _own_elections(
    image: MetadataImage, election: Election, defaults: ElectionRules
) -> Steps[ControllerResult[bool]]:
    electorate = Electorate(image)
    records: list[MetadataRecord] = []
    pace = Pace()
    for topic in image.topics_by_id.values():
        rules: ElectionRules | None = None
        for index, old in topic.partitions.items():
            if pace.is_step_over():
                yield
            if not _is_needed(old, election):
                continue
            if rules is None:
                rules = rules_of(image, topic, defaults)
            if election is Election.UNCLEAN and not rules.is_unclean:
                break
            if pace.is_step_over(RECORD_WORK):  # a decision takes long, also without a record
                yield
            try:
                records.append(_elected(topic, index, old, election, electorate, rules))
            except KafkaError:
                continue
            if len(records) >= ELECTIONS_A_DECISION:
                return ControllerResult(tuple(records), True)
    return ControllerResult(tuple(records), False)
