"""Asks leaders about many partitions at once, and continues asking while leaders change.

One request a broker and question, whatever the number of partitions. An answer that only says "not
now" (an election, a broker that restarts) is asked for again within a deadline, after a new look at
the cluster.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.cluster import Cluster, NotNowError, Topic, look, name_of

_ENTRIES_MAX = 20_000
"""So many entries stand in one request at most."""

_LEADER_CHANGED = {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_NOT_NOW = _LEADER_CHANGED | {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a broker that has not heard of it yet
}

K = TypeVar("K")
V = TypeVar("V")


class LeaderChangedError(NotNowError):
    """A partition has another leader than the one that answered before."""


class Answer(NamedTuple):
    """The result for one thing that a broker was asked for: an error code, 0 for none."""

    code: int
    value: Any


class Asker:
    """Questions to the brokers of one cluster."""

    def __init__(self, client: BlockingClient, deadline_s: float = 60.0) -> None:
        """Nothing is asked yet.

        Args:
            client: closed by `close`.
            deadline_s: how long one question is asked again.
        """
        self._client = client
        self._deadline_s = deadline_s
        self._cluster: Cluster | None = None
        self._names: frozenset[str] | None = None
        self._is_asking = False

    @property
    def cluster(self) -> Cluster:
        """The cluster as last looked at; looked at again after a question that was not answered."""
        if self._cluster is None:
            self._cluster = look(self._client, self._names)
            self._client.others = tuple(self._cluster.brokers.values())
        return self._cluster

    def look(
        self, names: Iterable[str] | None = None, *, deadline_s: float | None = None
    ) -> Cluster:
        """Look at the cluster again.

        Args:
            names: the topics that matter from now on; None: all.
            deadline_s: None: that of all questions.

        Raises:
            ClusterError: no broker answers.
        """
        self._names = None if names is None else frozenset(names)
        self._cluster = None
        return self.again(lambda: self.cluster, deadline_s)

    def look_at_each(self, names: Iterable[str]) -> Iterator[Cluster]:
        """Yield each broker's answer about these topics, one after the other.

        Raises:
            ClusterError: one does not answer.
        """
        for address in self.cluster.brokers.values():
            yield look(self._client, names, address)

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def again(self, call: Callable[[], V], deadline_s: float | None = None) -> V:
        """Call until the cluster answers, within the deadline; look at it before each repetition.

        Within a call of this the repetition is the outer one's.
        """
        if self._is_asking:
            return call()
        retrying = Retrying(
            retry=retry_if_exception(_is_passing),
            stop=stop_after_delay(self._deadline_s if deadline_s is None else deadline_s),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            before_sleep=self._forget,
            reraise=True,
        )
        self._is_asking = True
        try:
            return retrying(call)
        finally:
            self._is_asking = False

    def _forget(self, _: RetryCallState) -> None:
        self._cluster = None

    def ask(self, node: int, api_key: ApiKey, version: int, body: object) -> Any:
        """One request to one broker."""
        address = self.cluster.brokers.get(node)
        if address is None:
            raise NotNowError(f"broker {node} is not there")
        return self._client.ask(address, api_key, version, body)

    def ask_leaders(
        self,
        keys: Iterable[K],
        partition_of: Callable[[K], TopicPartition],
        of_broker: Callable[[int, list[K]], Iterator[tuple[K, Answer]]],
        *,
        pinned: bool,
    ) -> dict[K, Any]:
        """Ask the leaders of partitions until all have answered.

        Args:
            keys: what is asked for.
            partition_of: whose leader is asked.
            of_broker: asks one node for some keys, in one request.
            pinned: the request names leader epochs, so a changed leader cannot be asked instead.

        Raises:
            LeaderChangedError: a leader is not the one that was named; only if `pinned`.
            UnknownTopicError, ClusterError: no answer.
        """
        left = list(keys)
        found: dict[K, Any] = {}

        def ask() -> None:
            nonlocal left
            by_leader: dict[int, list[K]] = {}
            for key in left:
                partition = partition_of(key)
                leader = leader_of(self.cluster.topic(partition.topic), partition.partition)
                by_leader.setdefault(leader, []).append(key)
            problems = []
            for node, wanted in by_leader.items():
                asked = iter(wanted)
                while some := list(islice(asked, _ENTRIES_MAX)):
                    for key, answer in of_broker(node, some):
                        if answer.code == 0:
                            found[key] = answer.value
                        else:
                            problems.append((partition_of(key), answer.code))
            left = [key for key in left if key not in found]
            _check(problems, pinned=pinned)
            if left:
                raise ClusterError(f"a broker omitted {partition_of(left[0])} in its answer")

        self.again(ask)
        return found


def leader_of(topic: Topic, partition: int) -> int:
    """The node that leads a partition, -1 for none now.

    Raises:
        ClusterError: the topic has no such partition.
    """
    leader = topic.leaders.get(partition)
    if leader is None:
        raise ClusterError(
            f"topic {topic.name} has no partition {partition}: it has {len(topic.leaders)}"
        )
    return leader


def _is_passing(error: BaseException) -> bool:
    """Whether the same question may be answered later; a changed leader begins a new round."""
    if isinstance(error, LeaderChangedError):
        return False
    return isinstance(error, NotNowError | UnreachableError)


def _check(problems: Iterable[tuple[TopicPartition, int]], *, pinned: bool) -> None:
    """Raise what the worst answer says: an error before a changed leader before "not now"."""
    not_now = changed = None
    for partition, code in problems:
        text = f"{partition}: {name_of(code)}"
        if code not in _NOT_NOW:
            raise ClusterError(text)
        if pinned and code in _LEADER_CHANGED:
            changed = text
        not_now = text
    if changed is not None:
        raise LeaderChangedError(changed)
    if not_now is not None:
        raise NotNowError(not_now)
