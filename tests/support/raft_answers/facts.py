"""What is known of a controller when it is asked, and the bodies of requests made from it."""

from dataclasses import dataclass
from typing import Any

from kafka_protocol.types import CLUSTER_METADATA_TOPIC, ZERO_UUID
from metadata_topic.quorum.log.metadata_log import METADATA_TOPIC_ID
from tests.support.raft_answers.directories import CLUSTER_ID, LogFacts

Body = dict[str, Any]
ASKED = 1
"""The id of Kafka's controller; 2 and 3 are played."""
STRANGER = 9
"""An id that is in no voter set."""
OTHER_DIRECTORY = b"other directory!"


def directory_of(node_id: int) -> bytes:
    """The directory id of a node of the dynamic quorum."""
    return bytes([node_id % 256]) * 16


@dataclass(frozen=True)
class Facts:
    """The asked controller just before a question.

    Attributes:
        is_dynamic: the voters have directory ids.
        ports: where nodes listen.
    """

    epoch: int
    log: LogFacts
    is_dynamic: bool
    ports: dict[int, int]

    @property
    def end(self) -> int:
        return self.log.end

    @property
    def last_epoch(self) -> int:
        return self.log.last_epoch

    def directory(self, node_id: int) -> bytes:
        return directory_of(node_id) if self.is_dynamic else ZERO_UUID

    def vote(
        self,
        *,
        epoch: int = 0,
        candidate: int = 2,
        last: int = 0,
        end: int = 0,
        pre_vote: bool = False,
        **more: Any,
    ) -> Body:
        """`epoch`, `last` and `end` are added to the asked controller's own."""
        partition = {
            "partition_index": 0,
            "replica_epoch": self.epoch + epoch,
            "replica_id": candidate,
            "replica_directory_id": self.directory(candidate),
            "voter_directory_id": self.directory(ASKED),
            "last_offset_epoch": self.last_epoch + last,
            "last_offset": self.end + end,
            "pre_vote": pre_vote,
        }
        return _request(partition, {"voter_id": ASKED}, more)

    def begin(self, *, epoch: int = 0, leader: int = 2, **more: Any) -> Body:
        partition = {
            "partition_index": 0,
            "voter_directory_id": self.directory(ASKED),
            "leader_id": leader,
            "leader_epoch": self.epoch + epoch,
        }
        top = {"voter_id": ASKED, "leader_endpoints": self._endpoints(leader)}
        return _request(partition, top, more)

    def end_epoch(
        self, *, epoch: int = 0, leader: int = 2, successors: tuple[int, ...] = (), **more: Any
    ) -> Body:
        candidates = [
            {"candidate_id": one, "candidate_directory_id": self.directory(one)}
            for one in successors
        ]
        partition = {
            "partition_index": 0,
            "leader_id": leader,
            "leader_epoch": self.epoch + epoch,
            "preferred_successors": list(successors),
            "preferred_candidates": candidates,
        }
        return _request(partition, {"leader_endpoints": self._endpoints(leader)}, more)

    def fetch(
        self, offset: int, last: int, *, epoch: int = 0, replica: int = STRANGER, **more: Any
    ) -> Body:
        """`offset` and `last` are absolute, `epoch` is added to the asked controller's own."""
        partition = {
            "partition": 0,
            "current_leader_epoch": self.epoch + epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": last,
            "partition_max_bytes": 1 << 20,
            "replica_directory_id": self.directory(replica),
            "high_watermark": 2**63 - 1,
        }
        top = {
            "replica_id": replica,
            "replica_state": {"replica_id": replica, "replica_epoch": -1},
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 8 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return _request(partition, top, more, "topic")

    def fetch_snapshot(
        self, snapshot: tuple[int, int], position: int = 0, *, epoch: int = 0, **more: Any
    ) -> Body:
        replica = more.pop("replica", STRANGER)
        partition = {
            "partition": 0,
            "current_leader_epoch": self.epoch + epoch,
            "snapshot_id": {"end_offset": snapshot[0], "epoch": snapshot[1]},
            "position": position,
            "replica_directory_id": self.directory(replica),
        }
        return _request(partition, {"replica_id": replica, "max_bytes": 1 << 20}, more, "name")

    def _endpoints(self, leader: int) -> list[Body]:
        if leader not in self.ports:
            return [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}]
        return [{"name": "CONTROLLER", "host": "127.0.0.1", "port": self.ports[leader]}]


def _request(partition: Body, top: Body, more: Body, topic_field: str = "topic_name") -> Body:
    """Put a request together; `more` replaces fields of the partition or of the request."""
    topic: Body = {topic_field: more.pop("topic", CLUSTER_METADATA_TOPIC)}
    if topic_field == "topic":
        topic["topic_id"] = more.pop("topic_id", METADATA_TOPIC_ID)
    twice = more.pop("twice", False)
    for name, value in more.items():
        (partition if name in partition else top)[name] = value
    partitions = [partition]
    if twice:
        index = next(name for name in ("partition_index", "partition") if name in partition)
        partitions = [partition, {**partition, index: 1}]
    return {"cluster_id": CLUSTER_ID, **top, "topics": [{**topic, "partitions": partitions}]}
