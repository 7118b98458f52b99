"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, on the core of one node (KIP-853)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import AppendEpochStart, AppendVoters, AwaitAppend, Respond, Send
from metadata_topic.raft.events import AppendGranted, Closing
from metadata_topic.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BatchFacts,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Node,
    RemoveVoterRequest,
    SnapshotId,
    UpdateVoterRequest,
    VoteRequest,
    VoterRequest,
    VoterResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from tests.support.worlds.scripted_core import ScriptedCore, directory, key, leading

ABLE = ApiVersionsResponse(ErrorCode.NONE, (0, 1))


def voter(node_id: int, *, host: str = "", disk: int = 0, **changes: Any) -> Voter:
    """A voter as the log names it, by its first disk."""
    place = VoterEndpoint("CONTROLLER", host or f"n{node_id}", 9093)
    return Voter(ReplicaKey(node_id, directory(disk or node_id)), (place,), **changes)


def of(*ids: int) -> VoterSet:
    return VoterSet(tuple(voter(one) for one in ids))


def dynamic(
    *ids: int, me: int = 2, config: RaftConfig | None = None, log: Sequence[tuple[int, int]] = ()
) -> ScriptedCore:
    """A node of a quorum that has its voters in the log."""
    facts = QuorumFacts(1, of(*ids), in_log=True)
    return ScriptedCore(me, voters=(), facts=facts, config=config, log=log)


def fetch(node: ScriptedCore, replica: ReplicaKey, offset: int | None = None) -> None:
    """A replica has flushed all of the leader's log, or up to `offset`, and shows it."""
    end, epoch = node.core.log.end_offset, node.core.epoch
    asked = FetchRequest(replica, epoch, end if offset is None else offset, epoch, max_wait_ms=0)
    node.ask(asked, token=1000 + replica.id)


def leader(*ids: int, me: int = 2, config: RaftConfig | None = None) -> ScriptedCore:
    """One that leads, and whose epoch has begun: its first record is committed."""
    node = dynamic(*ids, me=me, config=config)
    if node.core.role is not Role.LEADER:
        node.lead()
    for other in ids:
        if other != me:
            fetch(node, key(other))
    assert node.core.high_watermark == node.core.log.end_offset
    return node


def add(node: ScriptedCore, new: Voter, **changes: Any) -> list[VoterResponse]:
    return ask(node, AddVoterRequest(node.core.epoch, new, **changes))


def remove(node: ScriptedCore, old: ReplicaKey) -> list[VoterResponse]:
    return ask(node, RemoveVoterRequest(node.core.epoch, old))


def update(node: ScriptedCore, said: Voter) -> list[VoterResponse]:
    return ask(node, UpdateVoterRequest(node.core.epoch, said))


def ask(node: ScriptedCore, request: VoterRequest, token: int = 7) -> list[VoterResponse]:
    return [one for one in map(said, node.ask(request, token)) if one is not None]


def said(effect: object) -> VoterResponse | None:
    is_it = isinstance(effect, Respond) and isinstance(effect.response, VoterResponse)
    return effect.response if is_it else None  # type: ignore[union-attr, return-value]


def codes(node: ScriptedCore) -> list[ErrorCode]:
    """How requests about voters were answered so far."""
    return [one.error for one in map(said, node.effects) if one is not None]


def let_append(node: ScriptedCore) -> VoterSet:
    """The controller's turn is over: the voters that are appended then."""
    before = len(node.wanted(AppendVoters))
    node.step(AppendGranted())
    [appended] = node.wanted(AppendVoters)[before:]
    assert appended.base_offset == node.core.log.end_offset - 1
    return appended.voters


def adding(node: ScriptedCore, new: Voter) -> None:
    """Ask for a controller that has all of the log, and let it say what it can do."""
    fetch(node, new.key)
    assert add(node, new) == []
    [question] = node.take(ApiVersionsRequest)
    node.answer(question, ABLE)


# -- adding -----------------------------------------------------------------------------------


def test_a_controller_is_queried_then_votes_and_is_answered_at_the_commit() -> None:
    node = leader(1, 2, 3)
    fetch(node, key(4))
    assert add(node, voter(4)) == []
    [question] = node.take(ApiVersionsRequest)
    assert question.to == Node(4, "n4", 9093)
    assert node.wanted(AwaitAppend) == []
    node.answer(question, ApiVersionsResponse(ErrorCode.NONE, (0, 2)))
    assert len(node.wanted(AwaitAppend)) == 1
    assert node.core.voters.ids == (1, 2, 3), "the controller's decisions come first"

    added = voter(4, kraft_versions=(0, 2))
    assert let_append(node).get(4) == added
    end = node.core.log.end_offset
    assert node.core.voters.ids == (1, 2, 3, 4)
    fetch(node, key(1))
    assert node.core.high_watermark == end - 1, "two of four are no majority"
    assert codes(node) == []
    fetch(node, key(4))
    assert node.core.high_watermark == end
    assert codes(node) == [ErrorCode.NONE]
    assert [one.id for one in node.leading.observers] == []
    node.step(AppendGranted())
    assert node.core.log.end_offset == end, "once"


def test_the_only_voter_adds_another_and_commits_no_more_without_it() -> None:
    node = leader(2)
    adding(node, voter(3))
    let_append(node)
    end = node.core.log.end_offset
    assert node.core.high_watermark == end - 1
    fetch(node, key(3))
    assert (node.core.high_watermark, codes(node)) == (end, [ErrorCode.NONE])


def test_a_lost_disk_is_replaced_under_its_id_by_removing_it_first() -> None:
    node = leader(1, 2, 3)
    new = voter(3, disk=33)
    fetch(node, new.key)
    [refused] = add(node, new)
    assert refused.error is ErrorCode.DUPLICATE_VOTER
    assert remove(node, key(3)) == []
    assert let_append(node).ids == (1, 2)
    fetch(node, key(1))
    adding(node, new)
    assert let_append(node).get(3) == new
    end = node.core.log.end_offset
    fetch(node, key(3))
    assert node.core.high_watermark < end, "the lost disk counts for nothing"
    fetch(node, new.key)
    assert node.core.high_watermark == end
    assert codes(node) == [ErrorCode.DUPLICATE_VOTER, ErrorCode.NONE, ErrorCode.NONE]


def test_an_answer_that_waits_for_no_commit_comes_with_the_append() -> None:
    node = leader(1, 2, 3)
    fetch(node, key(4))
    add(node, voter(4), waits_for_commit=False)
    node.answer(node.take(ApiVersionsRequest)[0], ABLE)
    assert codes(node) == []
    let_append(node)
    assert codes(node) == [ErrorCode.NONE]
    [refused] = remove(node, key(1))
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT, "the change is not committed"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, ErrorCode.REQUEST_TIMED_OUT),
        (ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION), ErrorCode.REQUEST_TIMED_OUT),
        (ApiVersionsResponse(ErrorCode.NONE), ErrorCode.INVALID_REQUEST),
        (ApiVersionsResponse(ErrorCode.NONE, (0, 0)), ErrorCode.INVALID_REQUEST),
        (ApiVersionsResponse(ErrorCode.NONE, (2, 3)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_that_cannot_vote_here_or_says_nothing_is_not_added(
    answer: ApiVersionsResponse | None, code: ErrorCode
) -> None:
    node = leader(1, 2, 3)
    fetch(node, key(4))
    add(node, voter(4))
    node.answer(node.take(ApiVersionsRequest)[0], answer)
    assert codes(node) == [code]
    assert node.wanted(AwaitAppend) == []
    assert remove(node, key(1)) == [], "the next change may begin"


def test_one_that_is_behind_or_silent_is_not_added() -> None:
    node = leader(1, 2, 3)
    for offset, wait_ms in ((None, 0), (0, 0), (1, 3_000)):
        if offset is not None:
            fetch(node, key(4), offset)
        for other in (1, 3):
            node.now_ms += wait_ms // 2
            fetch(node, key(other))
        add(node, voter(4))
        node.answer(node.take(ApiVersionsRequest)[0], ABLE)
    assert codes(node) == [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert node.core.voters.ids == (1, 2, 3)


def test_loading_a_snapshot_counts_as_caught_up_only_to_the_earlier_end() -> None:
    node = leader(1, 2, 3)
    end = node.core.log.end_offset
    fetch(node, key(4), 1)
    node.append(2)
    for other in (1, 3):
        node.now_ms += 2_000
        fetch(node, key(other))
    chunk = FetchSnapshotRequest(key(4), node.core.epoch, SnapshotId(end, node.core.epoch), 0, 10)
    node.ask(chunk, token=1004)
    fetch(node, key(4), end)
    add(node, voter(4))
    node.answer(node.take(ApiVersionsRequest)[0], ABLE)
    assert codes(node) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_late_answer_to_an_earlier_question_adds_nobody() -> None:
    node = leader(1, 2, 3)
    fetch(node, key(4))
    add(node, voter(4))
    [question] = node.take(ApiVersionsRequest)
    node.tick(node.now_ms + 2_000)
    assert codes(node) == [ErrorCode.REQUEST_TIMED_OUT]
    fetch(node, key(1))
    fetch(node, key(5))
    add(node, voter(5))
    node.answer(question, ABLE)
    assert node.wanted(AwaitAppend) == []
    assert remove(node, key(1))[0].error is ErrorCode.REQUEST_TIMED_OUT, "5 is still asked"


# -- removing ---------------------------------------------------------------------------------


def test_a_removed_leader_leads_until_the_commit_without_its_own_vote() -> None:
    node = leader(1, 2, 3)
    assert remove(node, key(2)) == []
    assert let_append(node).ids == (1, 3)
    end = node.core.log.end_offset
    node.append(1)
    assert node.core.role is Role.LEADER
    fetch(node, key(1), end)
    assert node.core.high_watermark == end - 1
    fetch(node, key(3), end)
    assert node.core.high_watermark == end
    assert codes(node) == [ErrorCode.NONE]
    assert node.core.role is Role.RESIGNED
    assert {one.to.id for one in node.take(EndQuorumEpochRequest)} == {1, 3}
    node.run_until(node.now_ms + 60_000)
    assert node.core.role is Role.UNATTACHED
    assert node.take(VoteRequest) == [], "it observes"


def test_a_removed_leader_gives_up_when_the_others_do_not_fetch() -> None:
    node = leader(1, 2, 3)
    remove(node, key(2))
    let_append(node)
    node.now_ms += 2_900
    node.ask(FetchRequest(key(1), 1, 1, 1, max_wait_ms=0))
    node.tick(node.now_ms + 200)
    assert node.core.role is Role.RESIGNED
    assert codes(node)[-1] in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT}


def test_a_leader_that_resigned_before_its_removal_commits_stands_again() -> None:
    node = leader(1, 2)
    remove(node, key(2))
    let_append(node)
    end = node.core.log.end_offset
    until = node.now_ms + 60_000
    while node.core.role is not Role.PROSPECTIVE:
        assert node.now_ms < until
        node.tick(node.now_ms + 100)
    *_, asked = node.take(VoteRequest)
    assert (asked.to.id, node.core.voters.ids) == (1, (1,)), "the other has the one vote"
    node.answer(asked, node.yes())
    *_, asked = node.take(VoteRequest)
    node.answer(asked, node.yes())
    assert node.core.role is Role.LEADER
    fetch(node, key(1))
    assert node.core.high_watermark > end
    assert node.core.role is Role.RESIGNED, "now it is removed"
    node.run_until(node.now_ms + 60_000)
    assert node.core.role is Role.UNATTACHED


def test_a_removed_leader_that_stands_again_says_where_it_is() -> None:
    node = leader(1, 2)
    remove(node, key(2))
    let_append(node)
    assert node.core.replica.node_of(2) == Node(2, "n2", 9093)
    assert node.core.replica.node_of(4) is None


def test_a_removal_that_those_who_are_left_cannot_commit_is_refused() -> None:
    node = leader(1, 2, 3)
    node.now_ms += 2_900
    fetch(node, key(1))
    node.tick(node.now_ms + 200)
    assert node.core.role is Role.LEADER, "1 fetches, 3 does not"
    [refused] = remove(node, key(1))
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT
    assert "1 of the voters that would be left" in refused.text
    assert remove(node, key(3)) == [], "the lost one may go"
    assert let_append(node).ids == (1, 2)


def test_who_is_left_alone_fetches_from_its_leader_before_it_stands() -> None:
    node = dynamic(1, 2)
    node.answer(node.follow(), node.records())
    alone = BatchFacts(0, 1, 1, None, of(2))
    *_, asked = node.take(FetchRequest)
    node.answer(asked, node.records(alone))
    assert node.core.voters.ids == (2,)
    assert node.core.role is Role.FOLLOWER
    *_, asked = node.take(FetchRequest)
    assert asked.request.offset == 1, "so that the leader sees it committed"


def test_of_two_voters_the_other_is_removed_and_the_leader_continues_alone() -> None:
    node = leader(2, 3)
    remove(node, key(3))
    let_append(node)
    assert (node.core.high_watermark, codes(node)) == (node.core.log.end_offset, [ErrorCode.NONE])
    node.run_until(node.now_ms + 60_000)
    assert node.core.role is Role.LEADER


@pytest.mark.parametrize(
    ("ids", "old"), [((2,), key(2)), ((1, 2, 3), key(4)), ((1, 2, 3), ReplicaKey(3, b"x" * 16))]
)
def test_the_last_voter_and_one_that_is_none_are_not_removed(
    ids: tuple[int, ...], old: ReplicaKey
) -> None:
    node = leader(*ids)
    [refused] = remove(node, old)
    assert refused.error is ErrorCode.VOTER_NOT_FOUND
    assert old.text in refused.text
    assert node.wanted(AwaitAppend) == []


# -- one after the other ----------------------------------------------------------------------


def test_the_next_change_waits_for_the_commit_of_the_one_before() -> None:
    node = leader(1, 2, 3)
    remove(node, key(3))
    for request in (AddVoterRequest(1, voter(4)), UpdateVoterRequest(1, voter(1, host="moved"))):
        [refused] = ask(node, request)
        assert refused.error is ErrorCode.REQUEST_TIMED_OUT
    let_append(node)
    node.now_ms += 1_999
    fetch(node, key(1), 1)
    node.tick(node.now_ms + 1)
    assert codes(node)[-1] is ErrorCode.REQUEST_TIMED_OUT, "its time is over"
    [refused] = remove(node, key(1))
    assert (refused.error, "HWM" in refused.text) == (ErrorCode.REQUEST_TIMED_OUT, True)
    fetch(node, key(1))
    assert remove(node, key(1)) == [], "it was committed all the same"


def test_a_change_whose_time_is_over_before_its_turn_is_not_made() -> None:
    node = leader(1, 2, 3)
    remove(node, key(3))
    node.tick(node.now_ms + 2_000)
    assert codes(node) == [ErrorCode.REQUEST_TIMED_OUT]
    node.step(AppendGranted())
    assert node.wanted(AppendVoters) == []


def test_a_leader_changes_no_voter_before_its_epoch_has_a_commit() -> None:
    """An earlier leader's record in its log may be in force nowhere else."""
    node = dynamic(1, 2, 3)
    node.lead()
    for request in (
        AddVoterRequest(1, voter(4)),
        RemoveVoterRequest(1, key(1)),
        UpdateVoterRequest(1, voter(1, host="moved")),
    ):
        [refused] = ask(node, request)
        assert refused.error is ErrorCode.REQUEST_TIMED_OUT
    assert node.wanted(AwaitAppend) == []


def test_the_lead_is_lost_and_with_it_what_was_asked() -> None:
    node = leader(1, 2, 3)
    remove(node, key(3))
    node.ask(BeginQuorumEpochRequest(2, 1, key(2), None), token=8)
    assert codes(node) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    node.step(AppendGranted())
    assert node.wanted(AppendVoters) == []


def test_what_the_next_leader_cuts_off_is_taken_back() -> None:
    node = leader(1, 2, 3)
    end = node.core.log.end_offset
    remove(node, key(3))
    let_append(node)
    assert node.core.voters.ids == (1, 2)
    node.ask(BeginQuorumEpochRequest(2, 1, key(2), leading(2, 1).leader), token=8)
    *_, asked = node.take(FetchRequest)
    cut = FetchResponse(ErrorCode.NONE, leading(2, 1), -1, 0, diverging=EpochEnd(1, end))
    node.answer(asked, cut)
    assert node.core.voters.ids == (1, 2, 3)


# -- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        AddVoterRequest(1, Voter(ReplicaKey(-1, directory(4)), voter(4).endpoints)),
        AddVoterRequest(1, Voter(ReplicaKey(4), voter(4).endpoints)),
        AddVoterRequest(1, replace(voter(4), endpoints=())),
        AddVoterRequest(1, replace(voter(4), endpoints=(VoterEndpoint("OTHER", "n4", 1),))),
        RemoveVoterRequest(1, ReplicaKey(3)),
        RemoveVoterRequest(1, ReplicaKey(-1, directory(3))),
        UpdateVoterRequest(1, replace(voter(3), endpoints=())),
        UpdateVoterRequest(1, replace(voter(3), kraft_versions=(-1, 1))),
        UpdateVoterRequest(1, replace(voter(3), kraft_versions=(1, 0))),
        UpdateVoterRequest(1, replace(voter(3), kraft_versions=(0, 0))),
    ],
    ids=str,
)
def test_bad_input_what_names_no_voter_is_refused(request_: VoterRequest) -> None:
    node = leader(1, 2, 3)
    assert [one.error for one in ask(node, request_)] == [ErrorCode.INVALID_REQUEST]
    assert remove(node, key(3)) == [], "nothing is half done"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_another_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    node = leader(1, 2, 3)
    for request in (AddVoterRequest(epoch, voter(4)), RemoveVoterRequest(epoch, key(3))):
        assert [one.error for one in ask(node, request)] == [code]


def test_a_follower_and_a_leader_that_ends_name_no_voter() -> None:
    follower = dynamic(1, 2, 3)
    follower.follow()
    assert [one.error for one in remove(follower, key(3))] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    ending = leader(1, 2, 3)
    ending.step(Closing(0.0))
    assert [one.error for one in remove(ending, key(3))] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_static_voters_are_those_of_the_settings() -> None:
    node = ScriptedCore()
    node.lead()
    fetch(node, key(3))
    assert [one.error for one in add(node, voter(4))] == [ErrorCode.UNSUPPORTED_VERSION]
    assert [one.error for one in remove(node, key(3))] == [ErrorCode.UNSUPPORTED_VERSION]
    moved = voter(3, host="elsewhere", kraft_versions=(0, 0))
    assert [one.error for one in update(node, moved)] == [ErrorCode.NONE]
    assert [one.error for one in update(node, voter(4))] == [ErrorCode.VOTER_NOT_FOUND]
    assert node.wanted(AwaitAppend) == []


# -- a voter that has moved -------------------------------------------------------------------


@pytest.mark.parametrize(
    "moved",
    [
        voter(3, host="elsewhere"),
        voter(3, kraft_versions=(1, 1)),
        replace(voter(3), endpoints=(*voter(3).endpoints, VoterEndpoint("SECOND", "n3", 9094))),
    ],
)
def test_a_voter_that_has_moved_is_answered_at_once_and_stands_in_the_log(moved: Voter) -> None:
    node = leader(1, 2, 3)
    assert update(node, moved) == []
    assert let_append(node) == of(1, 2, 3).with_voter(moved)
    assert codes(node) == [ErrorCode.NONE]
    assert node.core.high_watermark == node.core.log.end_offset - 1


def test_a_voter_that_says_what_is_known_costs_no_record() -> None:
    node = leader(1, 2, 3)
    assert [one.error for one in update(node, voter(3))] == [ErrorCode.NONE]
    assert node.wanted(AwaitAppend) == []


@pytest.mark.parametrize("stranger", [voter(4), voter(3, disk=33)])
def test_who_is_no_voter_cannot_move(stranger: Voter) -> None:
    node = leader(1, 2, 3)
    assert [one.error for one in update(node, stranger)] == [ErrorCode.VOTER_NOT_FOUND]


HERE = RaftConfig(endpoints=(VoterEndpoint("CONTROLLER", "here", 9093),))


def updates(node: ScriptedCore) -> list[Send]:
    """What it asked to have changed of itself."""
    sent = node.wanted(Send)
    return [one for one in sent if isinstance(one.request, UpdateVoterRequest)]


def follow_for(node: ScriptedCore, seconds: int) -> None:
    """Let it fetch so long from a leader that has nothing new; what else it asks is answered."""
    node.answer(node.follow(), node.records())
    for _ in range(seconds):
        node.now_ms += 1_000
        *_, last = node.wanted(Send)
        if not isinstance(last.request, FetchRequest):
            node.answer(last, VoterResponse(ErrorCode.NONE, leading(1, 1)))
            *_, last = node.wanted(Send)
        node.answer(last, node.records())


def test_a_follower_that_is_listed_elsewhere_says_so_once_it_follows() -> None:
    node = dynamic(1, 2, 3, config=HERE)
    follow_for(node, 1)
    assert updates(node) == [], "what it has of the log may be old"
    follow_for(node, 8)
    found = updates(node)
    assert {one.request for one in found} == {UpdateVoterRequest(1, voter(2, host="here"))}
    assert {one.to for one in found} == {leading(1, 1).leader}
    assert 2 <= len(found) <= 4, "again after a fetch timeout, as long as that is not in its log"
    *_, last = node.wanted(Send)
    assert isinstance(last.request, FetchRequest), "it continues to fetch"


def test_one_that_is_listed_where_it_is_says_nothing() -> None:
    known = QuorumFacts(1, of(1, 3).with_voter(voter(2, host="here")), in_log=True)
    node = ScriptedCore(voters=(), config=HERE, facts=known)
    follow_for(node, 8)
    assert updates(node) == []


def test_a_leader_that_is_listed_elsewhere_writes_it_with_its_first_record() -> None:
    node = dynamic(1, 2, 3, config=HERE)
    node.lead()
    [start] = node.wanted(AppendEpochStart)
    assert start.with_voters
    assert start.voters == of(1, 3).with_voter(voter(2, host="here")) == node.core.voters
    assert set(node.leading.voters) == {key(1), key(3)}


def joining(*voters: Voter, joins: bool = True) -> ScriptedCore:
    """Node 2, which has no vote."""
    config = replace(HERE, joins=joins)
    return ScriptedCore(
        2, voters=(), facts=QuorumFacts(1, VoterSet(voters), in_log=True), config=config
    )


def asked_of(node: ScriptedCore) -> set[object]:
    """What it asked to have changed of the voters."""
    kinds = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
    return {one.request for one in node.wanted(Send) if isinstance(one.request, kinds)}


def test_a_controller_without_a_vote_asks_for_one_where_it_joins() -> None:
    node = joining(voter(1), voter(3))
    follow_for(node, 8)
    wanted = AddVoterRequest(1, voter(2, host="here"), waits_for_commit=False)
    assert asked_of(node) == {wanted}
    node = joining(voter(1), voter(3), joins=False)
    follow_for(node, 8)
    assert asked_of(node) == set()


def test_a_controller_on_a_new_disk_has_the_former_one_removed_first() -> None:
    node = joining(voter(1), voter(2, disk=22), voter(3))
    follow_for(node, 8)
    assert asked_of(node) == {RemoveVoterRequest(1, ReplicaKey(2, directory(22)))}
