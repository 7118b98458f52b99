"""Our core in the place of Kafka's controllers: the same roles, questions and answers.

Recorded by `tests.support.raft_answers.record`; the README there says how. Compared are
error, leader and epoch, whether the leader's address is known, the vote, what a Fetch brings, and
what was persisted. What differs on purpose stands in `DIFFERS`, and nowhere else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from kafka_protocol.errors import ErrorCode
from tests.support.raft_answers.comparison import (
    FOLDER,
    Outcome,
    is_for_the_core,
    ours,
    recorded,
    rows,
)
from tests.support.raft_answers.roles import Row

WORLDS = sorted(
    path.stem for path in FOLDER.glob("*.jsonl") if path.stem not in {"formats", "starts"}
)
LEADERS = ("leader", "the only voter")
ANSWER = frozenset({"error", "leader", "address", "granted", "went", "high_watermark"})
SNAPSHOT_ERRORS = {
    ErrorCode.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


@dataclass(frozen=True)
class Differs:
    """A difference on purpose.

    Attributes:
        why: the reason, and what Kafka does.
        fields: those of the outcome that may differ.
        where: rows that it is about, with Kafka's outcome.
        ours: whether our outcome is what we want there.
    """

    why: str
    fields: frozenset[str]
    where: Callable[[Row, Outcome], bool]
    ours: Callable[[Row, Outcome], bool]


def asked(row: Row, api: str, *words: str) -> bool:
    return row["api"] == api and all(word in row["question"] for word in words)


def is_about_a_second_leader(row: Row) -> bool:
    return row["api"] in {"BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH"}


def is_copy_of_asked(row: Row) -> bool:
    return asked(row, "VOTE", "vote, ", "this controller as candidate")


def names_nobody(row: Row) -> bool:
    partition = row["request"]["topics"][0]["partitions"][0]
    return not partition.get("preferredCandidates", partition.get("preferredSuccessors"))


def is_disturbed(row: Row) -> bool:
    """Whether an id outside the voters would end a leadership that works."""
    voters = {"sole": {1}}.get(row["world"], {1, 2, 3})
    partition = row["request"]["topics"][0]["partitions"][0]
    return (
        row["api"] in {"VOTE", "BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH"}
        and row["role"].startswith((*LEADERS, "follower, fetched"))
        and partition.get("replicaId", partition.get("leaderId")) not in voters
        and partition.get("replicaEpoch", partition.get("leaderEpoch")) > row["epoch"]
    )


def is_on_the_way(theirs: Outcome, mine: Outcome) -> bool:
    """Whether Kafka's role was read before it stood, or after its pre-vote was granted."""
    return (theirs.role, mine.role) in {("follower", "prospective"), ("candidate", "prospective")}


DIFFERS = (
    Differs(
        "a second leader of an epoch, or one with our id: Kafka's process ends, ours answers 42",
        ANSWER | {"role", "election"},
        lambda row, theirs: "died" in row and is_about_a_second_leader(row),
        lambda row, mine: mine.error == ErrorCode.INVALID_REQUEST,
    ),
    Differs(
        "a candidate with our own key: Kafka's process ends, ours refuses",
        ANSWER | {"role", "election"},
        lambda row, theirs: "died" in row and is_copy_of_asked(row),
        lambda row, mine: mine.granted is False and mine.error == ErrorCode.NONE,
    ),
    Differs(
        "a negative size of a chunk: Kafka's process ends, ours sends one byte",
        ANSWER | {"role", "election"},
        lambda row, theirs: "died" in row and asked(row, "FETCH_SNAPSHOT", "negative bytes"),
        lambda row, mine: mine.error == ErrorCode.NONE,
    ),
    Differs(
        "an error of FetchSnapshot: Kafka answers -1 without a topic (an exception), ours says it",
        ANSWER,
        lambda row, theirs: row["api"] == "FETCH_SNAPSHOT" and theirs.error == -1,
        lambda row, mine: mine.error in SNAPSHOT_ERRORS,
    ),
    Differs(
        "a leader is told that it leads: Kafka says yes, here somebody else has our id",
        frozenset({"error"}),
        lambda row, theirs: is_about_a_second_leader(row) and row["role"].startswith(LEADERS),
        lambda row, mine: mine.error == ErrorCode.INVALID_REQUEST,
    ),
    Differs(
        "a higher epoch from a candidate with our own id: Kafka takes it over, ours refuses it",
        ANSWER | {"role", "election"},
        lambda row, theirs: asked(row, "VOTE", "higher epoch", "this controller as candidate"),
        lambda row, mine: (
            mine.error == ErrorCode.INVALID_REQUEST
            and mine.leader is not None
            and mine.leader[1] == row["epoch"]
        ),
    ),
    Differs(
        "an id outside the voters while the leadership works: Kafka takes its epoch over, ours "
        "stays in its own",
        ANSWER | {"role", "election"},
        lambda row, theirs: is_disturbed(row),
        lambda row, mine: (
            mine.leader is not None
            and mine.leader[1] == row["epoch"]
            and mine.granted is not True
            and (row["api"] == "VOTE" or mine.error == ErrorCode.INVALID_REQUEST)
        ),
    ),
    Differs(
        "the leader calls a voter that takes it for lost: Kafka's continues with its pre-vote, "
        "ours "
        "follows again",
        frozenset({"role"}),
        lambda row, theirs: (
            row["role"] == "prospective" and asked(row, "BEGIN_QUORUM_EPOCH", "same epoch")
        ),
        lambda row, mine: mine.role == "follower",
    ),
    Differs(
        "a resigned leader names nobody: Kafka's follower stands at once, ours waits the longest",
        frozenset({"role"}),
        lambda row, theirs: row["api"] == "END_QUORUM_EPOCH" and names_nobody(row),
        lambda row, mine: mine.role == "follower",
    ),
    Differs(
        "a follower whose leader resigned: Kafka 4.3.1 refuses pre-votes, later ones do not "
        "(KAFKA-20895)",
        frozenset({"granted"}),
        lambda row, theirs: (
            row["role"] == "follower, leader resigned" and asked(row, "VOTE", "pre")
        ),
        lambda row, mine: mine.granted is True,
    ),
    Differs(
        "a negative epoch of a leader: 74 in Kafka, 42 here as for all negative numbers",
        frozenset({"error"}),
        lambda row, theirs: is_about_a_second_leader(row) and "negative epoch" in row["question"],
        lambda row, mine: mine.error == ErrorCode.INVALID_REQUEST,
    ),
    Differs(
        "a leader's quorum-state: Kafka drops the vote in it, ours keeps the vote for itself",
        frozenset({"election"}),
        lambda row, theirs: row["role"].startswith(LEADERS),
        lambda row, mine: mine.election in {(row["epoch"], 1, 1), recorded(row).election},
    ),
    Differs(
        "a prospective voter that gives its vote: it stays prospective in Kafka, here it follows "
        "nobody until the next election timeout",
        frozenset({"role"}),
        lambda row, theirs: row["role"].startswith("prospective") and theirs.granted is True,
        lambda row, mine: mine.role == "unattached" and mine.granted is True,
    ),
    Differs(
        "a controller outside the voters that has fetched: Kafka refuses its pre-vote, ours "
        "validates "
        "like an unattached voter",
        frozenset({"granted"}),
        lambda row, theirs: row["world"] == "outside" and asked(row, "VOTE", "pre-vote"),
        lambda row, mine: mine.granted is True,
    ),
)


def is_same_or_longer(row: Row, theirs: Outcome, mine: Outcome) -> bool:
    """Kafka reads to the end of a segment at most, and may append while it is asked."""
    if theirs.went is None or mine.went is None or theirs.went[0] != "records":
        return False
    is_new = theirs.went[1] > row["log"]["end"]
    return bool(is_new or (mine.went[0] == "records" and theirs.went[1] <= mine.went[1]))


def difference(row: Row, theirs: Outcome, mine: Outcome) -> dict[str, object]:
    """What differs, without what is no difference of behaviour."""
    found: dict[str, object] = dict(theirs.differences(mine))
    if row["api"] == "END_QUORUM_EPOCH" and is_on_the_way(theirs, mine):
        found.pop("role")
        if theirs.role == "candidate":
            found.pop("election")
    if "went" in found and is_same_or_longer(row, theirs, mine):
        del found["went"]
    return found


def groups() -> list[tuple[str, str, str]]:
    return sorted(
        {
            (world, row["role"], row["api"])
            for world in WORLDS
            for row in rows(world)
            if is_for_the_core(row)
        }
    )


@cache
def outcomes(world: str) -> list[tuple[Row, Outcome, Outcome, dict[str, object]]]:
    """Every row for the core with both outcomes and what differs."""
    made = []
    for row in rows(world):
        if is_for_the_core(row):
            theirs, mine = recorded(row), ours(row)
            made.append((row, theirs, mine, difference(row, theirs, mine)))
    return made


@pytest.mark.parametrize(("world", "role", "api"), groups())
def test_the_core_answers_and_persists_as_kafka_does(world: str, role: str, api: str) -> None:
    wrong = []
    for row, theirs, mine, found in outcomes(world):
        if (row["role"], row["api"]) != (role, api):
            continue
        for rule in DIFFERS:
            if found and rule.where(row, theirs) and rule.ours(row, mine):
                found = {name: both for name, both in found.items() if name not in rule.fields}
        if found:
            wrong.append((row["question"], row["version"], found))
    assert wrong == []


@pytest.mark.parametrize("rule", DIFFERS, ids=[rule.why.split(":")[0] for rule in DIFFERS])
def test_every_difference_is_one(rule: Differs) -> None:
    used = [
        row
        for world in WORLDS
        for row, theirs, mine, found in outcomes(world)
        if rule.where(row, theirs) and rule.ours(row, mine) and rule.fields & set(found)
    ]
    assert used != []


def test_a_prevote_in_our_epoch_leaves_quorum_state_as_it_was() -> None:
    """The recording's own promise, so that the comparison above means something."""
    prevotes = [
        row
        for world in WORLDS
        for row in rows(world)
        if asked(row, "VOTE", "pre-vote, same epoch") and "died" not in row
    ]
    assert len(prevotes) > 50
    assert all(row["before"] == row["after"] for row in prevotes)


def test_votes_were_granted_and_refused_in_many_roles() -> None:
    """A recording in which nothing happens would agree with anything."""
    granted = {
        (row["role"], recorded(row).granted)
        for world in WORLDS
        for row in rows(world)
        if row["api"] == "VOTE" and is_for_the_core(row)
    }
    assert len([role for role, is_granted in granted if is_granted]) > 3
    assert len([role for role, is_granted in granted if is_granted is False]) > 5
