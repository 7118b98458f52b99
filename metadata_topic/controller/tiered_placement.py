"""Brokers that may have replicas of a tiered topic, or of `__remote_log_metadata`.

A broker whose tier is off (or of Apache Kafka) would serve a tiered topic as a plain one. It copies
no segment, reads none from the store, and deletes segments that are not copied. Two brokers with
different stores would look for each other's segments in the wrong store. So all replicas of a
tiered topic lie on brokers of one store. Replicas of `__remote_log_metadata` lie on brokers whose
tier is on, with any store: these open the listener that other tiers connect to.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.controller.errors import (
    InvalidConfigError,
    InvalidReplicaAssignmentError,
)
from metadata_topic.image.image import MetadataImage, is_tiered
from metadata_topic.image.model import BrokerImage, RemoteStore, TopicImage
from runtime.work import Pace, Steps

_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Candidates:
    """Brokers that may have replicas of one topic.

    Attributes:
        brokers: By id.
        what: Property shared by them, for the text after "only 2 broker(s)".
        why_few: End of a refusal: the other brokers, and the remedy.
    """

    brokers: Mapping[int, BrokerImage]
    what: str = "are registered"
    why_few: str = ""

    def check(self, replicas: Iterable[int]) -> None:
        """Refuse a manual assignment to other brokers; all must be registered.

        Raises:
            InvalidReplicaAssignmentError: Names broker, cause and remedy.
        """
        for broker_id in replicas:
            if broker_id not in self.brokers:
                fit = f"choose among {_shown(self.brokers)}, or " if self.brokers else ""
                store = " with that store" if "store" in self.what else ""
                raise InvalidReplicaAssignmentError(
                    f"The manual partition assignment includes broker {broker_id}, which does not "
                    f"{self.what}: {fit}set remote.log.storage.system.enable=true{store} on broker "
                    f"{broker_id}."
                )


def candidates_for(
    image: MetadataImage, name: str, configs: Mapping[str, str], hosts: Collection[int]
) -> Candidates:
    """Find the brokers that may have replicas of a topic.

    Args:
        image: Has the brokers.
        name: Of the topic.
        configs: Its overrides.
        hosts: Brokers that have replicas of it, or tiered brokers of a manual assignment; empty
            for a new topic without one.
    """
    if name == REMOTE_LOG_METADATA_TOPIC:
        on = {one.id: one for one in image.brokers.values() if one.remote_store is not None}
        return Candidates(on, "have a remote tier", _why_few(image, on))
    if not is_tiered(configs):
        return Candidates(image.brokers)
    store = _common_store(image, hosts or image.brokers.keys())
    alike = {
        one.id: one
        for one in image.brokers.values()
        if store is not None and one.remote_store == store
    }
    if store is None and not hosts:
        return Candidates({}, "have a remote tier", _why_few(image, {}))
    what = "have a remote tier with the store of this topic"
    return Candidates(alike, what, _why_few(image, alike, " and that store"))


def _why_few(image: MetadataImage, fit: Mapping[int, BrokerImage], also: str = "") -> str:
    others = [one for one in image.brokers.values() if one.id not in fit]
    idle = sum(not one.is_active for one in fit.values())
    off = sum(one.remote_store is None for one in others)
    ways = "Start those that are fenced, or one" if idle else "Start a broker"
    if fit and not idle:
        ways = f"Ask for {len(fit)} replica(s) at most, or start a broker"
    return (
        f" Of {len(image.brokers)} registered broker(s) {idle} with such a tier are fenced or "
        f"stopping, {off} are without a tier, {len(others) - off} have another store. "
        f"{ways} with "
        f"remote.log.storage.system.enable=true{also}."
    )


def _common_store(image: MetadataImage, broker_ids: Iterable[int]) -> RemoteStore | None:
    """Store of most of these brokers, active ones first; on a tie that of the lowest id."""
    active: Counter[RemoteStore] = Counter()
    known: Counter[RemoteStore] = Counter()
    for broker_id in sorted(broker_ids):
        broker = image.brokers.get(broker_id)
        if broker is not None and broker.remote_store is not None:
            known[broker.remote_store] += 1
            active[broker.remote_store] += broker.is_active
    return max(known, key=lambda store: (active[store], known[store]), default=None)


def hosts_of(topic: TopicImage) -> Steps[set[int]]:
    """Ids of the brokers that have replicas of a topic, in steps."""
    hosts: set[int] = set()
    pace = Pace()
    for partition in topic.partitions.values():
        hosts.update(partition.replicas)
        if pace.is_step_over():
            yield
    return hosts


def check_switched_on(
    image: MetadataImage, name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Steps[None]:
    """Refuse to make a topic tiered while one of its replicas is on an unfit broker.

    Args:
        image: The cluster now; has the topic.
        name: Of the topic.
        before: Its present overrides.
        after: Its overrides after the change.

    Raises:
        InvalidConfigError: Names the brokers and the remedy.
    """
    if is_tiered(before) or not is_tiered(after):
        return
    topic = image.topics_by_name[name]
    hosts = yield from hosts_of(topic)
    fit = candidates_for(image, name, after, hosts).brokers
    if unfit := hosts - fit.keys():
        raise InvalidConfigError(
            f"remote.storage.enable=true: broker(s) {_shown(unfit)} have replicas of {name}, and "
            "their remote tier is off, or its store is another one than that of the other "
            "replicas. Start them with remote.log.storage.system.enable=true and the same store, "
            "or make a new topic"
        )


def _shown(broker_ids: Collection[int]) -> str:
    shown = ", ".join(map(str, sorted(broker_ids)[:_SHOWN_MAX])) or "none"
    return shown + (", ..." if len(broker_ids) > _SHOWN_MAX else "")
