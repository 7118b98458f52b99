"""What a controller is asked in each role.

A question that would bring the controller into another role is asked like any other: the recorder
brings it back. Numbers are relative to the controller's own where `Facts` says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.raft_answers.facts import ASKED, OTHER_DIRECTORY, STRANGER, Body, Facts

UNKNOWN_TOPIC = b"no topic of ours"


@dataclass(frozen=True)
class Question:
    """One request.

    Attributes:
        make: the body, from the controller's facts.
    """

    name: str
    api: ApiKey
    version: int
    make: Callable[[Facts], Body]


def _vote(name: str, make: Callable[[Facts], Body], version: int = 2) -> Question:
    return Question(name, ApiKey.VOTE, version, make)


def votes() -> Iterator[Question]:
    """Votes and pre-votes that concern this controller's partition."""
    for kind, pre in (("vote", False), ("pre-vote", True)):
        for label, epoch in (("same epoch", 0), ("lower epoch", -1), ("higher epoch", 1)):
            yield _vote(
                f"{kind}, {label}, same log", lambda f, e=epoch, p=pre: f.vote(epoch=e, pre_vote=p)
            )
            yield _vote(
                f"{kind}, {label}, shorter log",
                lambda f, e=epoch, p=pre: f.vote(epoch=e, end=-1, pre_vote=p),
            )
        for label, epoch in (("same epoch", 0), ("higher epoch", 1)):
            yield _vote(
                f"{kind}, {label}, longer log",
                lambda f, e=epoch, p=pre: f.vote(epoch=e, end=5, pre_vote=p),
            )
            yield _vote(
                f"{kind}, {label}, longer log of a lower last epoch",
                lambda f, e=epoch, p=pre: f.vote(epoch=e, end=5, last=-1, pre_vote=p),
            )
            yield _vote(
                f"{kind}, {label}, unknown candidate",
                lambda f, e=epoch, p=pre: f.vote(epoch=e, candidate=STRANGER, pre_vote=p),
            )
            yield _vote(
                f"{kind}, {label}, candidate 3",
                lambda f, e=epoch, p=pre: f.vote(epoch=e, candidate=3, pre_vote=p),
            )
            yield _vote(
                f"{kind}, {label}, candidate 2 with another directory",
                lambda f, e=epoch, p=pre: f.vote(
                    epoch=e, pre_vote=p, replica_directory_id=OTHER_DIRECTORY
                ),
            )
            yield _vote(
                f"{kind}, {label}, this controller as candidate",
                lambda f, e=epoch, p=pre: f.vote(epoch=e, candidate=ASKED, pre_vote=p),
            )
            yield _vote(
                f"{kind}, {label}, meant for voter 3",
                lambda f, e=epoch, p=pre: f.vote(epoch=e, voter_id=3, pre_vote=p),
            )
            yield _vote(
                f"{kind}, {label}, meant for another directory",
                lambda f, e=epoch, p=pre: f.vote(
                    epoch=e, voter_directory_id=OTHER_DIRECTORY, pre_vote=p
                ),
            )
            yield _vote(
                f"{kind}, {label}, meant for nobody",
                lambda f, e=epoch, p=pre: f.vote(
                    epoch=e, voter_id=-1, voter_directory_id=bytes(16), pre_vote=p
                ),
            )
            yield _vote(
                f"{kind}, {label}, last epoch is the epoch",
                lambda f, e=epoch, p=pre: f.vote(
                    epoch=e, last_offset_epoch=f.epoch + e, pre_vote=p
                ),
            )
            yield _vote(
                f"{kind}, {label}, last epoch above the epoch",
                lambda f, e=epoch, p=pre: f.vote(
                    epoch=e, last_offset_epoch=f.epoch + e + 1, pre_vote=p
                ),
            )
        yield _vote(
            f"{kind}, higher epoch, shorter log of a higher last epoch",
            lambda f, p=pre: f.vote(epoch=3, last_offset_epoch=f.epoch + 1, end=-1, pre_vote=p),
        )
    for version in (0, 1):
        for label, epoch in (("same epoch", 0), ("higher epoch", 1)):
            yield _vote(f"vote, {label}, same log", lambda f, e=epoch: f.vote(epoch=e), version)


def bad_votes() -> Iterator[Question]:
    """Votes that no replica would send, or that concern something else."""
    for kind, pre in (("vote", False), ("pre-vote", True)):
        for name, more in {
            "negative epoch": {"replica_epoch": -1},
            "negative candidate": {"replica_id": -1},
            "negative last epoch": {"last_offset_epoch": -1},
            "negative end": {"last_offset": -1},
            "another cluster": {"cluster_id": "another cluster"},
            "no cluster": {"cluster_id": None},
            "another topic": {"topic": "t"},
            "another partition": {"partition_index": 1},
            "two partitions": {"twice": True},
        }.items():
            yield _vote(
                f"{kind}, higher epoch, {name}",
                lambda f, m=more, p=pre: f.vote(epoch=1, pre_vote=p, **m),
            )


def begins() -> Iterator[Question]:
    """BeginQuorumEpoch."""
    for name, more in {
        "lower epoch": {"epoch": -1},
        "same epoch, leader 2": {},
        "same epoch, leader 3": {"leader": 3},
        "same epoch, this controller as leader": {"leader": ASKED},
        "higher epoch, leader 2": {"epoch": 1},
        "higher epoch, this controller as leader": {"epoch": 1, "leader": ASKED},
        "higher epoch, a leader without vote": {"epoch": 1, "leader": STRANGER},
        "higher epoch, meant for voter 3": {"epoch": 1, "voter_id": 3},
        "higher epoch, meant for another directory": {
            "epoch": 1,
            "voter_directory_id": OTHER_DIRECTORY,
        },
        "higher epoch, meant for nobody": {
            "epoch": 1,
            "voter_id": -1,
            "voter_directory_id": bytes(16),
        },
        "higher epoch, no address": {"epoch": 1, "leader_endpoints": []},
        "higher epoch, no leader": {"epoch": 1, "leader_id": -1},
        "negative epoch": {"leader_epoch": -1},
        "higher epoch, another cluster": {"epoch": 1, "cluster_id": "another cluster"},
        "higher epoch, no cluster": {"epoch": 1, "cluster_id": None},
        "higher epoch, another topic": {"epoch": 1, "topic": "t"},
        "higher epoch, another partition": {"epoch": 1, "partition_index": 1},
        "higher epoch, two partitions": {"epoch": 1, "twice": True},
    }.items():
        yield Question(name, ApiKey.BEGIN_QUORUM_EPOCH, 1, lambda f, m=more: f.begin(**m))
    for name, epoch in (("same epoch, leader 2", 0), ("higher epoch, leader 2", 1)):
        yield Question(name, ApiKey.BEGIN_QUORUM_EPOCH, 0, lambda f, e=epoch: f.begin(epoch=e))


def ends() -> Iterator[Question]:
    """EndQuorumEpoch."""
    for name, more in {
        "lower epoch": {"epoch": -1},
        "same epoch, leader 2, this one second": {"successors": (3, 1)},
        "same epoch, leader 2, this one first": {"successors": (1, 3)},
        "same epoch, leader 2, this one not named": {"successors": (3,)},
        "same epoch, leader 2, nobody named": {},
        "same epoch, leader 3": {"leader": 3, "successors": (1, 2)},
        "same epoch, this controller as leader": {"leader": ASKED, "successors": (2, 3)},
        "higher epoch, leader 2, this one first": {"epoch": 1, "successors": (1, 3)},
        "higher epoch, a leader without vote": {"epoch": 1, "leader": STRANGER},
        "negative epoch": {"leader_epoch": -1},
        "higher epoch, another cluster": {"epoch": 1, "cluster_id": "another cluster"},
        "higher epoch, no cluster": {"epoch": 1, "cluster_id": None},
        "higher epoch, another topic": {"epoch": 1, "topic": "t"},
        "higher epoch, two partitions": {"epoch": 1, "twice": True},
    }.items():
        yield Question(name, ApiKey.END_QUORUM_EPOCH, 1, lambda f, m=more: f.end_epoch(**m))
    yield Question(
        "same epoch, leader 2, this one second",
        ApiKey.END_QUORUM_EPOCH,
        0,
        lambda f: f.end_epoch(successors=(3, 1)),
    )


def fetches() -> Iterator[Question]:
    """Fetch: who is asked, and in which epoch."""
    for version in (13, 17, 18):
        yield _fetch("log end", lambda f: f.fetch(f.end, f.last_epoch), version)
    yield _fetch("log end, by name", lambda f: f.fetch(f.end, f.last_epoch), 12)
    for name, more in {
        "log end, lower epoch": {"epoch": -1},
        "log end, higher epoch": {"epoch": 1},
        "log end, no epoch": {"current_leader_epoch": -1},
        "log end, reader without id": {"replica": -1},
        "log end, another cluster": {"cluster_id": "another cluster"},
        "log end, no cluster": {"cluster_id": None},
        "log end, another topic": {"topic_id": UNKNOWN_TOPIC},
        "log end, another partition": {"partition": 1},
        "log end, two partitions": {"twice": True},
        "log end, negative wait": {"max_wait_ms": -1},
        "log end, negative offset": {"fetch_offset": -1},
        "log end, negative last epoch": {"last_fetched_epoch": -1},
    }.items():
        yield _fetch(name, lambda f, m=more: f.fetch(f.end, f.last_epoch, **m))
    for label, epoch in (("lower", -1), ("higher", 1)):
        yield _fetch(f"{label} epoch, last epoch 0", lambda f, e=epoch: f.fetch(f.end, 0, epoch=e))
    yield _fetch("last epoch above the epoch", lambda f: f.fetch(f.end, f.epoch + 1))


def _fetch(name: str, make: Callable[[Facts], Body], version: int = 17) -> Question:
    return Question(name, ApiKey.FETCH, version, make)


def fetched_offsets() -> Iterator[Question]:
    """Fetch at a leader: every offset with every last epoch."""
    for offset in (0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18):
        for last in (0, 1, 2, 3, 4, 5, 6, 7, 8):
            yield _fetch(
                f"offset {offset}, last epoch {last}", lambda f, o=offset, e=last: f.fetch(o, e)
            )
    for beyond in (1, 1000):
        for last in (0, -1):
            yield _fetch(
                f"{beyond} beyond the log end, last epoch {last} to the leader's",
                lambda f, b=beyond, e=last: f.fetch(f.end + b, f.last_epoch + e),
            )
    for voter in (2, 3):
        yield _fetch(
            f"log end, by voter {voter}",
            lambda f, v=voter: f.fetch(f.end, f.last_epoch, replica=v),
        )
    for name, known in (("unknown", -1), ("0", 0), ("the largest", 2**63 - 1)):
        yield _fetch(
            f"log end, high watermark {name}",
            lambda f, k=known: f.fetch(f.end, f.last_epoch, high_watermark=k, max_wait_ms=300),
            18,
        )


def snapshots() -> Iterator[Question]:
    """FetchSnapshot."""
    for name, asked, position, more in (
        ("unknown", (11, 4), 0, {}),
        ("of the format step", (0, 0), 0, {}),
        ("older", (10, 4), 0, {}),
        ("newest", (14, 6), 0, {}),
        ("newest, from 5 on", (14, 6), 5, {}),
        ("newest, negative position", (14, 6), -1, {}),
        ("newest, far beyond", (14, 6), 1 << 30, {}),
        ("another epoch of the newest", (14, 5), 0, {}),
        ("negative", (-1, -1), 0, {}),
        ("newest, lower epoch", (14, 6), 0, {"epoch": -1}),
        ("newest, higher epoch", (14, 6), 0, {"epoch": 1}),
        ("newest, no epoch", (14, 6), 0, {"current_leader_epoch": -1}),
        ("newest, no bytes", (14, 6), 0, {"max_bytes": 0}),
        ("newest, negative bytes", (14, 6), 0, {"max_bytes": -1}),
        ("newest, ten bytes", (14, 6), 0, {"max_bytes": 10}),
        ("newest, another cluster", (14, 6), 0, {"cluster_id": "another cluster"}),
        ("newest, no cluster", (14, 6), 0, {"cluster_id": None}),
        ("newest, another topic", (14, 6), 0, {"topic": "t"}),
        ("newest, another partition", (14, 6), 0, {"partition": 1}),
        ("newest, two partitions", (14, 6), 0, {"twice": True}),
    ):
        yield Question(
            f"snapshot {name}",
            ApiKey.FETCH_SNAPSHOT,
            1,
            lambda f, a=asked, p=position, m=more: f.fetch_snapshot(a, p, **m),
        )
    yield Question("snapshot newest", ApiKey.FETCH_SNAPSHOT, 0, lambda f: f.fetch_snapshot((14, 6)))


def descriptions() -> Iterator[Question]:
    """DescribeQuorum."""
    for version in (0, 1, 2):
        yield Question("describe", ApiKey.DESCRIBE_QUORUM, version, _describe)
    yield Question(
        "describe another topic",
        ApiKey.DESCRIBE_QUORUM,
        2,
        lambda f: {"topics": [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]},
    )
    yield Question(
        "describe two partitions",
        ApiKey.DESCRIBE_QUORUM,
        2,
        lambda f: {
            "topics": [
                {
                    "topic_name": "__cluster_metadata",
                    "partitions": [{"partition_index": 0}, {"partition_index": 1}],
                }
            ]
        },
    )


def _describe(_: Facts) -> Body:
    partitions = [{"partition_index": 0}]
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": partitions}]}


def everywhere() -> list[Question]:
    """What is asked in every role."""
    return [*votes(), *begins(), *ends(), *fetches(), *snapshots(), *descriptions()]
