"""`remote restore-partition`: whether only the store has records, and the order to the leader.

The leader's tier decides where the log begins: it has read what accepted records prove. Here is
asked what one broker cannot know: whether a replica may return that has records.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tidemark.cluster.asking import BrokerState, Cluster, PartitionState

_VERSION: Final = 2
_ASK: Final = 0
_TIMEOUT_MS: Final = 120_000


class RestoreRefusedError(TidemarkError):
    """Nothing was changed, and why."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a log begins.

    Attributes:
        remote_end: offsets below it (exclusive) are in the store, as far as they are anywhere.
        end: new records begin here.
        local_end: offsets below it (exclusive) were given again meanwhile, by the empty log.
    """

    remote_end: int
    end: int
    local_end: int

    def lines(self, partition: PartitionState) -> Iterator[str]:
        """The effect, for the question."""
        yield f"{partition}, led by broker {partition.leader}"
        yield f"  new records begin:  at offset {self.end}"
        yield f"  from the store:     what it has of the offsets below {self.remote_end}"
        if self.remote_end < self.end:
            yield (
                f"  given up:           offsets {self.remote_end} to {self.end - 1}, a gap that "
                "readers pass over"
            )
        if self.local_end > 0:
            yield (
                f"  set aside:          {self.local_end} records taken since the log was lost, at "
                "offsets given before (directory *-stray)"
            )


def find(cluster: Cluster, topic: str, index: int) -> PartitionState:
    """The partition of that name.

    Raises:
        ClusterError: there is no such topic, or no broker answers.
        RestoreRefusedError: it has no such partition.
    """
    for one in cluster.partitions([topic]):
        if one.index == index:
            return one
    raise RestoreRefusedError(f"topic {topic} has no partition {index}")


def check_nobody_returns(
    cluster: Cluster, partition: PartitionState, lost: Collection[int]
) -> BrokerState:
    """Check that no replica may come back with records, but for those named as lost.

    Returns:
        The leader.

    Raises:
        RestoreRefusedError: one may.
        ClusterError: a broker does not answer.
    """
    brokers = cluster.brokers()
    active = {one: state for one, state in brokers.items() if not state.is_fenced}
    sizes = {
        one: cluster.replica_sizes(active[one], partition).get((partition.topic, partition.index))
        for one in partition.replicas
        if one in active and one not in {*lost, partition.leader}
    }
    if reason := why_refused(partition, sizes, active, lost):
        raise RestoreRefusedError(f"{partition} is not restored: {reason}")
    return active[partition.leader]


def why_refused(
    partition: PartitionState,
    sizes: Mapping[int, int | None],
    active: Collection[int],
    lost: Collection[int],
) -> str:
    """Why the partition must not begin again, with the remedy; "": it may.

    Args:
        partition: as the metadata say.
        sizes: bytes of the replicas of active followers; None: it is not served.
        active: brokers that are there.
        lost: brokers that a person named: what they have does not count.
    """
    if strangers := sorted(set(lost) - set(partition.replicas)):
        return f"broker {strangers[0]} has no replica of it; --lost names one that has"
    if partition.leader not in active:
        return (
            "it has no leader. Begin its last copy first: `tidemark directories forget ID "
            "--records-given-up N` on a broker that has it"
        )
    if partition.leader in lost:
        return f"broker {partition.leader} is named as lost, and leads it"
    for broker in partition.replicas:
        if broker in lost or broker == partition.leader:
            continue
        if broker not in active:
            return (
                f"broker {broker} is not there, and its replica may have records. Start it; where "
                f"its records are lost as well: --lost {broker}"
            )
        size = sizes.get(broker)
        if size is None:
            return (
                f"broker {broker} does not serve its replica, whose directory may come back. Give "
                f"that up with `tidemark directories forget` there, or name it: --lost {broker}"
            )
        if size > 0:
            return (
                f"the replica on broker {broker} has {size} bytes. Let it lead: stop the other "
                "brokers of the partition, then `kafka-leader-election.sh --election-type "
                f"UNCLEAN`; where its records do not count: --lost {broker}"
            )
    return ""


def ask(client: BlockingClient, leader: BrokerState, partition: PartitionState) -> Beginning:
    """Where its log would begin.

    Raises:
        RestoreRefusedError: the leader's tier has not found that its local copies are lost.
        ClusterError: it does not answer.
    """
    return _order(client, leader, partition, _ASK)


def above(found: Beginning, end: int | None) -> Beginning:
    """The same with a higher end that a person names, if any.

    Raises:
        RestoreRefusedError: it is too low.
    """
    if end is not None and end < found.end:
        raise RestoreRefusedError(f"offsets below {found.end} were given: the end cannot be {end}")
    return found if end is None else replace(found, end=end)


def restore(
    client: BlockingClient, leader: BrokerState, partition: PartitionState, found: Beginning
) -> None:
    """Let the log begin there; returns when it does.

    Raises:
        RestoreRefusedError, ClusterError: as `ask`, or it cannot be done now.
    """
    _order(client, leader, partition, found.end)


def _order(
    client: BlockingClient, leader: BrokerState, partition: PartitionState, restore_end: int
) -> Beginning:
    cls = codec.request(ApiKey.DELETE_RECORDS).cls
    asked = cls.Topics.Partitions(
        partition_index=partition.index, offset=0, restore_end=restore_end
    )
    topic = cls.Topics(name=partition.topic, partitions=[asked])
    body = cls(topics=[topic], timeout_ms=_TIMEOUT_MS)
    answer = client.ask(leader.address, ApiKey.DELETE_RECORDS, _VERSION, body)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise RestoreRefusedError(f"{partition} is not restored: {_meaning(found.error_code)}")
    if found.remote_end < 0:
        raise ClusterError(f"broker {leader.id} cannot do it: is it of Tidemark, of this version?")
    return Beginning(found.remote_end, found.low_watermark, found.local_end)


def _meaning(code: int) -> str:
    match code:
        case ErrorCode.INVALID_REQUEST:
            return (
                "its leader has not found that all local copies are lost. Health of the leader "
                "names what is wrong with it, and the remedy"
            )
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return "more offsets were proved meanwhile; give the command again"
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return "another broker leads it by now; give the command again"
        case ErrorCode.KAFKA_STORAGE_ERROR | ErrorCode.REQUEST_TIMED_OUT:
            return "the store or a disk fails, see the log of its leader; give the command again"
        case _:
            return ErrorCode.of(code).name
