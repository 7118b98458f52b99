"""Which epochs a replica takes over: every request and answer that can raise one."""

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import Persist, Respond, Send
from metadata_topic.raft.epochs import EPOCH_AFTER_JUMP_MAX, EPOCH_STEP_MAX
from metadata_topic.raft.events import (
    EPOCH_MAX,
    AbleToLead,
    Closing,
    ElectionState,
    Resign,
)
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Node,
    Request,
    Response,
    SnapshotId,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import VoterSet
from tests.support.worlds.scripted_core import ScriptedCore, key, leading, node_of

STRANGER = 77
EPOCH = 5
LIMIT = EPOCH + EPOCH_STEP_MAX
ELSEWHERE = Node(3, "elsewhere", 1)
RAISING = ("vote", "pre-vote", "begin", "end")


def raising(kind: str, sender: int, epoch: int, address: Node | None = None) -> Request:
    """A request in which `sender` names an epoch."""
    match kind:
        case "begin":
            return BeginQuorumEpochRequest(epoch, sender, key(2), address or node_of(sender))
        case "end":
            return EndQuorumEpochRequest(epoch, sender, (), address or node_of(sender))
        case _:
            pre_vote = kind == "pre-vote"
            return VoteRequest(epoch, key(sender), key(2), EPOCH, 99, pre_vote=pre_vote)


def unattached(**more: object) -> ScriptedCore:
    return ScriptedCore(election=ElectionState(EPOCH), log=((EPOCH, 0), (0, 10)), **more)  # type: ignore[arg-type]


def error_of(node: ScriptedCore, request: Request) -> ErrorCode:
    (answer,) = node.ask(request)
    assert isinstance(answer, Respond)
    return answer.response.error


# -- requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", [3, STRANGER])
@pytest.mark.parametrize("kind", RAISING)
def test_bad_input_a_request_1000_epochs_ahead_is_taken_over(kind: str, sender: int) -> None:
    """N107: the border."""
    node = unattached()
    assert error_of(node, raising(kind, sender, LIMIT)) is ErrorCode.NONE
    assert node.core.epoch == LIMIT


@pytest.mark.parametrize("epoch", [LIMIT + 1, EPOCH_MAX, 2**31 - 1])
@pytest.mark.parametrize("sender", [3, STRANGER])
@pytest.mark.parametrize("kind", RAISING)
def test_bad_input_an_absurd_epoch_of_a_request_moves_nothing(
    kind: str, sender: int, epoch: int
) -> None:
    """N107; Kafka takes the epoch over."""
    node = unattached()
    assert error_of(node, raising(kind, sender, epoch)) is ErrorCode.INVALID_REQUEST
    assert node.core.election == ElectionState(EPOCH)
    node.lead()
    assert node.core.epoch == EPOCH + 1, "the quorum can still elect"


@pytest.mark.parametrize("kind", RAISING)
def test_bad_input_steps_add_up_until_a_leader_has_worked(kind: str) -> None:
    """N107: thousands of small steps fit in a second."""
    node = unattached()
    assert error_of(node, raising(kind, 3, LIMIT)) is ErrorCode.NONE
    assert error_of(node, raising(kind, 3, LIMIT + 1)) is ErrorCode.INVALID_REQUEST
    assert node.core.epoch == LIMIT
    node.lead()
    led = node.core.epoch
    assert led == LIMIT + 1, "the quorum can still elect"
    assert error_of(node, raising(kind, 3, led + EPOCH_STEP_MAX)) is ErrorCode.NONE
    assert node.core.epoch == led + EPOCH_STEP_MAX


def test_after_a_leader_has_answered_a_fetch_steps_count_from_its_epoch() -> None:
    node = unattached()
    fetch = node.follow(3, LIMIT)
    node.answer(fetch, node.records())
    assert error_of(node, raising("vote", 3, LIMIT + 1)) is ErrorCode.NONE
    assert node.core.epoch == LIMIT + 1


@pytest.mark.parametrize("kind", RAISING)
def test_bad_input_a_request_in_our_own_id_raises_nothing(kind: str) -> None:
    """N107: nobody else may be named so."""
    node = unattached()
    assert error_of(node, raising(kind, 2, EPOCH + 1)) is ErrorCode.INVALID_REQUEST
    assert node.core.epoch == EPOCH


@pytest.mark.parametrize("api", [FetchRequest, FetchSnapshotRequest])
def test_bad_input_the_epoch_of_a_fetch_is_never_taken_over(api: type) -> None:
    node = unattached()
    request: Request = FetchRequest(key(3), EPOCH + 1, 10, EPOCH)
    if api is FetchSnapshotRequest:
        request = FetchSnapshotRequest(key(3), EPOCH + 1, SnapshotId(1, 1), 0, 100)
    assert error_of(node, request) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert node.core.epoch == EPOCH


def test_a_voter_named_in_a_refused_request_is_asked_at_its_known_address() -> None:
    node = unattached()
    for vote in node.stand():
        node.answer(vote, node.no())
    error_of(node, raising("begin", 3, LIMIT + 2, ELSEWHERE))
    (probe,) = node.take(FetchRequest)
    assert isinstance(probe.request, FetchRequest)
    assert (probe.to, probe.request.replica) == (node_of(3), ANY_REPLICA)
    answer = FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, leading(LIMIT + 2, 3))
    node.answer(probe, answer)
    assert (node.core.role, node.core.epoch, node.core.leader_id) == (Role.FOLLOWER, LIMIT + 2, 3)


def test_a_leader_that_is_named_a_far_epoch_stays_until_that_voter_says_so() -> None:
    node = unattached()
    node.lead()
    for begin in node.take(BeginQuorumEpochRequest):
        node.answer(begin, BeginQuorumEpochResponse(ErrorCode.NONE, leading(EPOCH + 1, 2)))
    node.tick(node.now_ms + 50)
    assert error_of(node, raising("vote", 3, LIMIT + 2)) is ErrorCode.INVALID_REQUEST
    (probe,) = node.take(FetchRequest)
    node.answer(probe, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leading(EPOCH + 1, 2)))
    assert node.core.role is Role.LEADER
    node.tick(node.now_ms + 50)
    error_of(node, raising("vote", 3, LIMIT + 2))
    (probe,) = node.take(FetchRequest)
    node.answer(probe, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, Standing(LIMIT + 2)))
    assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, LIMIT + 2)


def test_a_stranger_named_in_a_refused_request_is_not_asked() -> None:
    node = unattached()
    node.core.replica.pending.clear()
    error_of(node, raising("begin", STRANGER, LIMIT + 1))
    assert node.core.replica.doubted == set()
    assert {one.to.id for one in node.wanted(Send)} <= {1, 3}


def test_many_forged_requests_are_one_question_at_a_time() -> None:
    node = unattached()
    node.core.replica.pending.clear()
    node.take(FetchRequest)
    for number in range(100):
        node.ask(raising("begin", 3, LIMIT + 1), token=number)
    assert len([one for one in node.take(FetchRequest) if one.to == node_of(3)]) == 1


def probes(node: ScriptedCore) -> list[Send]:
    """What it asked since the last call to learn an epoch."""
    return [
        one
        for one in node.take(FetchRequest)
        if isinstance(one.request, FetchRequest) and one.request.replica == ANY_REPLICA
    ]


def test_a_voter_that_was_asked_for_its_epoch_is_not_asked_again() -> None:
    node = unattached()
    node.lead()
    error_of(node, raising("vote", 3, LIMIT + 2))
    for begin in node.take(BeginQuorumEpochRequest):
        node.answer(begin, BeginQuorumEpochResponse(ErrorCode.NONE, leading(EPOCH + 1, 2)))
    node.tick(node.now_ms + 50)
    for probe in node.wanted(Send):
        if isinstance(probe.request, FetchRequest):
            node.answer(probe, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, Standing(EPOCH)))
    node.take(FetchRequest)
    node.run_until(node.now_ms + 1_000)
    assert probes(node) == []
    assert node.core.replica.doubted == set()


def test_a_voter_in_backoff_is_asked_when_its_backoff_ends() -> None:
    """A follower has nothing else to do until its fetch is answered."""
    node = unattached()
    node.follow(1, EPOCH)
    node.core.replica.back_off(node_of(3))
    error_of(node, raising("begin", 1, LIMIT + 1))
    error_of(node, raising("vote", 3, LIMIT + 1))
    assert probes(node) == []
    assert node.wakes_at_ms == node.now_ms + node.core.replica.config.retry_backoff_ms
    node.tick(node.wakes_at_ms)
    assert [one.to for one in probes(node)] == [node_of(3)]


def test_bad_input_a_far_epoch_in_our_own_name_is_refused_at_once() -> None:
    node = unattached()
    assert error_of(node, raising("vote", 2, LIMIT + 1)) is ErrorCode.INVALID_REQUEST
    assert node.core.replica.doubted == set()
    assert node_of(2) not in {one.to for one in node.wanted(Send)}


def test_a_closing_node_asks_nobody_for_its_epoch() -> None:
    node = unattached()
    node.step(Closing(0.0))
    node.core.replica.pending.clear()
    node.take(FetchRequest)
    error_of(node, raising("vote", 3, LIMIT + 1))
    assert probes(node) == []


# -- answers ----------------------------------------------------------------------------------


def asked(kind: str) -> tuple[ScriptedCore, Send]:
    """A node in the role that sends such a request, and one that it sent to voter 3 or 1."""
    node = unattached()
    match kind:
        case "vote":
            return node, node.stand()[0]
        case "pre-vote":
            node.tick(60_000)
            return node, node.take(VoteRequest)[0]
        case "begin":
            node.lead()
            return node, node.take(BeginQuorumEpochRequest)[0]
        case "end":
            node.lead()
            node.take(BeginQuorumEpochRequest)
            node.step(Resign(0.0))
            return node, node.take(EndQuorumEpochRequest)[0]
        case "fetch":
            return node, node.follow(1, EPOCH)
        case _:
            fetch = node.follow(1, EPOCH)
            found = FetchResponse(ErrorCode.NONE, leading(EPOCH, 1), snapshot_id=SnapshotId(50, 5))
            node.answer(fetch, found)
            return node, node.take(FetchSnapshotRequest)[0]


def answer_in(kind: str, epoch: int) -> Response:
    standing = Standing(epoch)
    error = ErrorCode.FENCED_LEADER_EPOCH
    match kind:
        case "vote" | "pre-vote":
            return VoteResponse(error, standing)
        case "begin":
            return BeginQuorumEpochResponse(error, standing)
        case "end":
            return EndQuorumEpochResponse(error, standing)
        case "fetch":
            return FetchResponse(error, standing)
        case _:
            return FetchSnapshotResponse(error, standing, SnapshotId(50, 5))


ANSWERS = ("vote", "pre-vote", "begin", "end", "fetch", "snapshot")


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_far_epoch_in_an_answer_of_a_voter_at_its_address_is_taken_over(kind: str) -> None:
    node, sent = asked(kind)
    node.answer(sent, answer_in(kind, EPOCH_AFTER_JUMP_MAX))
    assert node.core.epoch == EPOCH_AFTER_JUMP_MAX
    node.lead()
    assert node.core.epoch == EPOCH_AFTER_JUMP_MAX + 1, "elections stay possible"


@pytest.mark.parametrize("epoch", [EPOCH_AFTER_JUMP_MAX + 1, EPOCH_MAX, 2**31 - 1])
@pytest.mark.parametrize("kind", ANSWERS)
def test_an_epoch_that_would_end_elections_is_not_taken_over_from_answers(
    kind: str, epoch: int
) -> None:
    node, sent = asked(kind)
    before = node.core.election
    node.answer(sent, answer_in(kind, epoch))
    assert node.core.election == before
    assert len([one for one in node.reports if f"is in epoch {epoch}" in one]) == 1


def test_an_absurd_epoch_in_an_answer_is_reported_once_and_asked_again() -> None:
    node, sent = asked("fetch")
    for _ in range(3):
        node.answer(sent, answer_in("fetch", EPOCH_MAX))
        assert node.take(FetchRequest) == []
        node.run_until(node.now_ms + node.core.replica.config.retry_backoff_ms)
        (sent,) = node.take(FetchRequest)
        assert sent.to == node_of(1)
    assert len([one for one in node.reports if "is in epoch" in one]) == 1


@pytest.mark.parametrize(("epoch", "taken"), [(LIMIT, True), (LIMIT + 1, False)])
def test_an_address_named_by_a_request_raises_the_epoch_by_at_most_1000(
    epoch: int, *, taken: bool
) -> None:
    facts = QuorumFacts(1, VoterSet(()), in_log=True)
    config = RaftConfig(bootstrap=(Node(-1, "boot", 1),))
    node = unattached(facts=facts, voters=(), config=config)
    node.ask(BeginQuorumEpochRequest(EPOCH, 3, key(2), ELSEWHERE))
    (fetch,) = [one for one in node.take(FetchRequest) if one.to == ELSEWHERE]
    node.answer(fetch, answer_in("fetch", epoch))
    assert node.core.epoch == (epoch if taken else EPOCH)


def test_a_bootstrap_server_may_name_any_epoch_in_its_answer() -> None:
    """A controller that joins knows no voter yet, and the settings name this address."""
    facts = QuorumFacts(1, VoterSet(()), in_log=True)
    config = RaftConfig(bootstrap=(Node(-1, "boot", 1),))
    node = unattached(facts=facts, voters=(), config=config)
    (fetch,) = node.take(FetchRequest)
    node.answer(fetch, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, leading(1 << 20, 3)))
    assert (node.core.epoch, node.core.leader_id) == (1 << 20, 3)


# -- the end of all epochs --------------------------------------------------------------------


def test_the_last_epoch_is_proposed_and_none_after_it() -> None:
    node = ScriptedCore(election=ElectionState(EPOCH_MAX - 1))
    node.lead()
    assert node.core.epoch == EPOCH_MAX
    assert any("is the last" in one for one in node.reports)
    node.run_until(node.now_ms + 60_000)
    assert node.core.epoch == EPOCH_MAX
    assert max(one.election.epoch for one in node.wanted(Persist)) == EPOCH_MAX


def test_a_voter_in_the_last_epoch_rests_and_says_so() -> None:
    node = ScriptedCore(election=ElectionState(EPOCH_MAX, 2, key(2)))
    node.run_until(60_000)
    assert node.core.epoch == EPOCH_MAX
    assert node.fatal == []
    assert any("is the last" in one for one in node.reports)


@pytest.mark.parametrize("kind", RAISING)
def test_bad_input_an_epoch_above_the_last_is_refused_from_near_it_too(kind: str) -> None:
    """A step of one, which is believed elsewhere, and would end the process here."""
    node = ScriptedCore(election=ElectionState(EPOCH_MAX), log=((EPOCH, 0), (0, 10)))
    assert error_of(node, raising(kind, 3, EPOCH_MAX + 1)) is ErrorCode.INVALID_REQUEST
    (probe,) = [one for one in node.take(FetchRequest) if one.to == node_of(3)]
    node.answer(probe, answer_in("fetch", EPOCH_MAX + 1))
    assert (node.core.epoch, node.fatal) == (EPOCH_MAX, [])


@pytest.mark.parametrize(
    ("voters", "epoch"), [((1, 2, 3), EPOCH_MAX + 1), ((2,), EPOCH_MAX + 1), ((2,), EPOCH_MAX)]
)
def test_a_quorum_state_with_the_last_epoch_ends_the_start_with_a_remedy(
    voters: tuple[int, ...], epoch: int
) -> None:
    node = ScriptedCore(voters=voters, election=ElectionState(epoch))
    assert "format this node as one that lost its disk" in node.fatal[0]
    assert node.wanted(Persist) == []


# -- strangers and a leadership that works ----------------------------------------------------


@pytest.mark.parametrize("kind", RAISING)
def test_a_stranger_does_not_end_a_leadership_that_a_majority_fetches_from(kind: str) -> None:
    node = unattached()
    node.lead()
    (answer,) = node.ask(raising(kind, STRANGER, EPOCH + 900))
    assert isinstance(answer, Respond)
    assert not getattr(answer.response, "granted", False)
    assert answer.response.standing.epoch == EPOCH + 1
    assert node.core.role is Role.LEADER


def test_the_sole_voter_never_hears_a_stranger() -> None:
    node = ScriptedCore(voters=(2,))
    assert node.core.role is Role.LEADER
    for _ in range(122):
        node.tick(node.now_ms + 20)
        node.ask(raising("vote", STRANGER, node.core.epoch + 900))
    assert (node.core.role, node.core.epoch) == (Role.LEADER, 1)


@pytest.mark.parametrize("kind", RAISING)
def test_a_stranger_is_refused_only_while_the_leader_is_heard(kind: str) -> None:
    node = unattached()
    fetch = node.follow(1, EPOCH)
    node.answer(fetch, node.records())
    heard_ms = node.now_ms
    node.now_ms = heard_ms + 1_999
    node.ask(raising(kind, STRANGER, EPOCH + 1))
    assert node.core.epoch == EPOCH
    node.core.replica.now_ms = node.now_ms = heard_ms + 2_000
    node.ask(raising(kind, STRANGER, EPOCH + 1))
    assert node.core.epoch == EPOCH + 1


def test_a_stranger_wins_a_follower_that_has_not_heard_its_leader_yet() -> None:
    """A record that this voter has not read may have made it a voter."""
    node = unattached()
    node.follow(1, EPOCH)
    (answer,) = node.ask(raising("vote", STRANGER, EPOCH + 1))
    assert isinstance(answer, Respond)
    assert isinstance(answer.response, VoteResponse)
    assert answer.response.granted


def test_a_known_voter_raises_the_epoch_of_a_leadership_that_works() -> None:
    node = unattached()
    node.lead()
    node.ask(raising("vote", 3, EPOCH + 2))
    assert node.core.epoch == EPOCH + 2


def test_a_follower_whose_leader_resigned_hears_a_stranger() -> None:
    node = unattached()
    fetch = node.follow(1, EPOCH)
    node.answer(fetch, node.records())
    node.ask(EndQuorumEpochRequest(EPOCH, 1, (key(3), key(2)), node_of(1)))
    node.ask(raising("vote", STRANGER, EPOCH + 1))
    assert node.core.epoch == EPOCH + 1


def test_an_observer_whose_leader_is_silent_hears_a_stranger() -> None:
    """It may be a voter by a record that it has not read, and its vote be needed."""
    node = unattached(node_id=9)
    fetch = node.follow(1, EPOCH)
    node.answer(fetch, node.records())
    node.tick(node.now_ms + 2_000)
    node.ask(raising("vote", STRANGER, EPOCH + 1))
    assert node.core.epoch == EPOCH + 1


def test_a_sole_voter_that_cannot_lead_looks_for_others() -> None:
    boot = Node(-1, "boot", 1)
    node = ScriptedCore(voters=(2,), config=RaftConfig(bootstrap=(boot,)))
    assert node.core.role is Role.LEADER
    node.step(AbleToLead(False, 0.0))
    node.run_until(60_000)
    assert boot in {one.to for one in node.take(FetchRequest)}
    assert node.core.role is Role.UNATTACHED
