"""Whether a start takes part beside a leader, by what it says of the log that was followed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.node.committed_mark import Comparison, dump_mark
from broker.node.identity_check import Identity, LeaderView
from broker.process import identity_watch
from broker.process.controller_questions import ControllerAnswer
from broker.process.identity_watch import POLLS_MAX, IdentityWatch
from broker.process.quorum_member import QuorumMember
from local_log.manager.log_dir import COMMITTED_METADATA
from metadata_topic.quorum.errors import QuorumConfigError
from metadata_topic.quorum.metadata_loader import CommittedBatch
from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import ReplicaKey
from runtime.ports import system_ports

BATCH, OLDER = CommittedBatch(40, 3, 7), CommittedBatch(7, 2, 7)
CONTROLLER = Node(1, "h1", 9093)
MARKS = {BATCH: [Path("/d1"), Path("/d2")]}


class Scripted:
    """What the controllers say, look after look; the last one for ever."""

    epochs: list[int | None]
    found: list[Comparison | None]
    polls = compared = 0

    def __init__(self, *_: Any) -> None:
        """As the questions that it stands for."""

    async def ask(self, node: Node) -> ControllerAnswer:
        type(self).polls += 1
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        view = None if epoch is None else LeaderView(node.id, "h1:9093", epoch, 0, ())
        return ControllerAnswer("mine", view)

    async def compare(self, *_: Any) -> Comparison | None:
        type(self).compared += 1
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]


async def compared(
    monkeypatch: pytest.MonkeyPatch,
    epochs: list[int | None],
    *found: Comparison | None,
    may_vote: bool = False,
) -> tuple[Comparison | None, type[Scripted]]:
    class Questions(Scripted):
        pass

    Questions.epochs, Questions.found = epochs, list(found)
    monkeypatch.setattr(identity_watch, "ControllerQuestions", Questions)
    monkeypatch.setattr(identity_watch, "EVERY_MS", 1)
    ports = system_ports(asyncio.get_running_loop())
    me = Identity(ReplicaKey(11, b"m" * 16), "mine", "/d1/meta.properties", may_vote=may_vote)
    try:
        watch = IdentityWatch(me, (CONTROLLER,), 1, ports)
        await watch.before_the_start()
        return (await watch.compare(MARKS)).get(BATCH), Questions
    finally:
        ports.executors.shutdown()


@pytest.mark.parametrize("found", [Comparison.SAME, Comparison.TRIMMED])
async def test_the_leader_of_the_log_is_followed(
    monkeypatch: pytest.MonkeyPatch, found: Comparison
) -> None:
    assert (await compared(monkeypatch, [3], found))[0] is found


async def test_another_log_is_refused_with_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QuorumConfigError) as refused:
        await compared(monkeypatch, [3], None, Comparison.OTHER)
    said = str(refused.value)
    assert "committed batch at offset 40 of epoch 3" in said
    assert "cluster.id=mine" in said
    assert "/d1/tidemark-committed-metadata" in said
    assert "/d2/tidemark-lives" in said


async def test_a_leader_that_is_cut_off_is_no_younger_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads on for a while in an epoch that is over, and may lack what was committed since."""
    found, asked = await compared(monkeypatch, [2, 2, 2, None, 4], Comparison.SAME)
    assert found is Comparison.SAME
    assert asked.compared == 1


async def test_a_leader_that_stays_in_an_older_epoch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QuorumConfigError, match="the log is a younger one"):
        await compared(monkeypatch, [2], Comparison.SAME)


async def test_a_voter_waits_for_nobody_where_nobody_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be needed to elect one."""
    found, asked = await compared(monkeypatch, [None], Comparison.SAME, may_vote=True)
    assert (found, asked.polls) == (None, 1)


async def test_a_voter_takes_part_where_the_leader_does_not_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found, asked = await compared(monkeypatch, [3], None, may_vote=True)
    assert (found, asked.compared) == (None, POLLS_MAX)
    assert "no leader says" in caplog.text


async def test_a_broker_waits_for_a_leader_that_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would follow a younger log unseen."""
    found, asked = await compared(monkeypatch, [3], *[None] * POLLS_MAX, Comparison.SAME)
    assert (found, asked.compared) == (Comparison.SAME, POLLS_MAX + 1)


async def begun(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    leader_epoch: int | None,
    log: Mapping[CommittedBatch, Comparison | None],
    *,
    led_later: int | None = None,
) -> QuorumMember:
    """A member after its comparison; its directories `newer` and `older` note the two batches.

    Args:
        monkeypatch: for the questions.
        path: of the directories.
        leader_epoch: None: nobody leads, and the member may vote.
        log: what the leader says of each batch.
        led_later: the epoch of a leader that is there when the member has caught up.
    """
    answered = set[CommittedBatch]()

    class Questions(Scripted):
        async def compare(self, *asked: Any) -> Comparison | None:
            assert asked[2] not in answered, "it is asked once more for what it has said"
            assert self.polls <= POLLS_MAX, "what it has said is enough"
            if log[asked[2]] is not None:
                answered.add(asked[2])
            return log[asked[2]]

    Questions.epochs = [leader_epoch]
    monkeypatch.setattr(identity_watch, "ControllerQuestions", Questions)
    monkeypatch.setattr(identity_watch, "EVERY_MS", 1)
    for name, mark in (("older", OLDER), ("newer", BATCH)):
        (path / name).mkdir()
        (path / name / COMMITTED_METADATA).write_bytes(dump_mark(mark))
    directories: Any = SimpleNamespace(ids={path / "older": b"", path / "newer": b""})
    config: Any = SimpleNamespace(node_id=11)
    node: Any = SimpleNamespace(cluster_id="mine")
    ports = system_ports(asyncio.get_running_loop())
    member = QuorumMember(config, directories, node, ports)
    may_vote = leader_epoch is None
    me = Identity(ReplicaKey(11, b"m" * 16), "mine", "/d1/meta.properties", may_vote=may_vote)
    member._watch = watch = IdentityWatch(me, (CONTROLLER,), 1, ports)
    try:
        await watch.before_the_start()
        await member._compare()
        if led_later is not None:
            assert not member.log_is_proven
            Questions.epochs = [led_later]
            await member.compare_again()
    finally:
        ports.executors.shutdown()
    return member


SAME, OTHER, TRIMMED = Comparison.SAME, Comparison.OTHER, Comparison.TRIMMED


@pytest.mark.parametrize(
    ("leader_epoch", "newer", "older", "named"),
    [
        (3, OTHER, SAME, {"newer"}),  # it comes back with the log of its time
        (3, SAME, OTHER, {"older"}),  # likewise; the younger log has passed its offset
        (3, OTHER, OTHER, {"newer", "older"}),
        (2, SAME, OTHER, {"newer", "older"}),  # epochs began again: one is refused after a while
        (3, OTHER, TRIMMED, {"newer"}),
        (3, OTHER, None, {"newer"}),  # nobody says what the older one is
    ],
)
async def test_directories_of_each_batch_that_is_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    leader_epoch: int,
    newer: Comparison,
    older: Comparison | None,
    named: set[str],
) -> None:
    """A disk that was away comes back with the log of its time: the others are sound."""
    with pytest.raises(QuorumConfigError) as refused:
        await begun(monkeypatch, tmp_path, leader_epoch, {BATCH: newer, OLDER: older})
    said = str(refused.value)
    for name, batch in (("newer", BATCH), ("older", OLDER)):
        assert (str(tmp_path / name / COMMITTED_METADATA) in said) == (name in named)
        assert (f"at offset {batch.base_offset} of epoch {batch.epoch}" in said) == (name in named)


async def test_a_trimmed_mark_needs_no_registration_beside_one_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That one was noted when the broker had registered in this very log."""
    image: Any = SimpleNamespace(brokers={})
    (tmp_path / "all").mkdir()
    member = await begun(monkeypatch, tmp_path / "all", 3, {BATCH: TRIMMED, OLDER: TRIMMED})
    with pytest.raises(QuorumConfigError) as refused:
        member.check_registration(image)
    for name in ("newer", "older"):
        assert str(tmp_path / "all" / name / COMMITTED_METADATA) in str(refused.value)
    assert not member.log_is_proven, "a start deletes nothing for what stands in this log"
    member = await begun(monkeypatch, tmp_path, 3, {BATCH: SAME, OLDER: TRIMMED})
    member.check_registration(image)
    assert member.log_is_proven


async def test_a_voter_asks_once_more_when_somebody_leads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sound = {BATCH: SAME, OLDER: TRIMMED}
    member = await begun(monkeypatch, tmp_path, None, sound, led_later=3)
    assert member.log_is_proven
    (tmp_path / "other").mkdir()
    with pytest.raises(QuorumConfigError):
        await begun(monkeypatch, tmp_path / "other", None, {**sound, BATCH: OTHER}, led_later=3)


async def test_marks_of_which_nobody_says_anything_need_no_registration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A node that votes takes part before a leader can answer."""
    image: Any = SimpleNamespace(brokers={})
    member = await begun(monkeypatch, tmp_path, None, {})
    member.check_registration(image)


def said(node_id: int, epoch: int | None, *, cluster_id: str = "mine") -> ControllerAnswer:
    view = None if epoch is None else LeaderView(node_id, f"h{node_id}:9093", epoch, 0, ())
    return ControllerAnswer(cluster_id, view)


async def looked(
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[int, ControllerAnswer],
    *,
    me: int = 11,
    needed: int = 1,
) -> tuple[set[int], int | None]:
    """Which controllers are asked, and the epoch that is compared with."""
    asked, epochs = set[int](), list[int]()

    class Questions:
        def __init__(self, *_: Any) -> None:
            """As the questions that it stands for."""

        async def ask(self, node: Node) -> ControllerAnswer:
            asked.add(node.id)
            return answers[node.id]

        async def compare(self, _node: Node, epoch: int, *_: Any) -> Comparison:
            epochs.append(epoch)
            return Comparison.SAME

    monkeypatch.setattr(identity_watch, "ControllerQuestions", Questions)
    monkeypatch.setattr(identity_watch, "EVERY_MS", 1)
    ports = system_ports(asyncio.get_running_loop())
    identity = Identity(ReplicaKey(me, b"m" * 16), "mine", "/d1/meta.properties")
    known = tuple(Node(one, f"h{one}", 9093) for one in answers)
    try:
        watch = IdentityWatch(identity, known, needed, ports)
        await watch.before_the_start()
        await watch.compare(MARKS)
    finally:
        ports.executors.shutdown()
    return asked, epochs[0] if epochs else None


async def test_of_two_that_say_they_lead_the_later_one_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for epochs in ((4, 7), (7, 4)):
        answers = {one: said(one, epoch) for one, epoch in enumerate(epochs, 1)}
        assert (await looked(monkeypatch, answers))[1] == 7


async def test_the_leader_of_another_cluster_says_nothing_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {1: said(1, 4), 2: said(2, 9, cluster_id="another")}
    assert (await looked(monkeypatch, answers, needed=2))[1] == 4


async def test_a_node_does_not_count_among_the_others_of_another_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At its own address another process may answer, which is one controller as any."""
    answers = {1: said(1, None, cluster_id="another"), 2: said(2, None, cluster_id="another")}
    assert (await looked(monkeypatch, answers, me=1, needed=2))[1] is None
    with pytest.raises(QuorumConfigError, match="belong to another"):
        await looked(monkeypatch, answers, me=11, needed=2)


def member_beside_a_trimmed_log() -> QuorumMember:
    parts: Any = [SimpleNamespace(node_id=11), None, SimpleNamespace(cluster_id="mine"), None]
    member = QuorumMember(*parts)
    member._unproven = {BATCH: [Path("/d1")]}
    return member


def test_a_trimmed_log_without_this_broker_is_refused_with_its_files() -> None:
    """A younger log may be longer than the old one was, and begin behind the noted batch."""
    image: Any = SimpleNamespace(brokers={12: None})
    with pytest.raises(QuorumConfigError) as refused:
        member_beside_a_trimmed_log().check_registration(image)
    said = str(refused.value)
    assert "no registration of this broker" in said
    assert "remove /d1/tidemark-committed-metadata, /d1/tidemark-lives, and" in said


def test_a_trimmed_log_with_this_broker_is_followed() -> None:
    image: Any = SimpleNamespace(brokers={11: None})
    member_beside_a_trimmed_log().check_registration(image)
