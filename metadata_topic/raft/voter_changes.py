"""Changes of the voters by the leader: one voter at a time, the next after the commit of the last.

Two voter sets that differ by one voter have no disjoint majorities. So a leader elected by either
of them has every commit by the other. Three rules make this hold for all sets in use:

1. A set differs from the one before by one voter.
2. It is in force on a replica as soon as its record is in the log there.
3. It is appended only once two things are committed: the set before it, and a record of the
   leader's own epoch. An uncommitted record of an older leader may be replaced.

A truncation undoes the changes that it cuts off (`voter_history`). The record is appended between
two decisions of the active controller, whose batches have their offsets already (`AppendGranted`).

Static voters come into the log with kraft.version 1, by the same rules. The ids stay, and each gets
the directory id that it reported in this epoch. A majority of either set is a majority of the
other, by ids. The same holds by disks if each static voter has one disk, as static quorums assume.

Checks and codes are those of Kafka 4.3's AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler
and LeaderState (kraft.version), in their order. DIFFERS: a new voter counts at once, so it must
have had all of the log recently. The bound is the time after which a leader without a majority
resigns (Kafka: fetched within the hour). A voter's report that equals its entry is answered without
a record. The change to kraft.version 1 is, as a voter's change, one at a time. It waits while a
disk fetches for a voter that reported another disk.

Source: KIP-853, KIP-1186 (an answer before the commit), Kafka 4.1 (kraft.version 0 to 1).
"""

from collections import Counter
from typing import Final

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from metadata_topic.raft.effects import AppendVoters, AwaitAppend
from metadata_topic.raft.leading import append, check_quorum_ms, follow_voters, leader_error
from metadata_topic.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BatchFacts,
    ChangeRequest,
    Node,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpgradeKraftVersionRequest,
    VoterResponse,
)
from metadata_topic.raft.replica import Pending, Replica
from metadata_topic.raft.role_states import Leader, VoterChange
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet

_Refusal = tuple[ErrorCode, str]
_NO_TEXT: Final = ""
_ANY_HOST: Final = ("", "0.0.0.0", "::")

# -- requests ---------------------------------------------------------------------------------


def on_add_request(replica: Replica, token: int, request: AddVoterRequest) -> None:
    """Begin to add a voter: first ask it for its kraft.version range."""
    state = _leader(replica, token, request.epoch)
    if state is None:
        return
    node = _node_of(replica, request.voter)
    why = (
        _senseless(replica, request.voter, node)
        or _not_now(replica, state)
        or _not_dynamic(replica, "adding")
        or _not_yet(replica, state)
        or _not_new(replica, request.voter.key)
    )
    if why is not None:
        _refuse(replica, token, why)
        return
    assert node is not None, "it is not senseless"
    _begin(replica, state, token, request)
    replica.send(node, ApiVersionsRequest(request.voter.key))


def _senseless(replica: Replica, voter: Voter, node: Node | None) -> _Refusal | None:
    text = ""
    if not _is_usable(voter.key):
        text = "Add voter request didn't include a valid voter"
    elif node is None:
        places = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in voter.endpoints)
        text = (
            f"Add voter request didn't include the endpoint ({places}) for the default listener "
            f"{replica.config.listener_name}"
        )
    return (ErrorCode.INVALID_REQUEST, text) if text else None


def _not_new(replica: Replica, key: ReplicaKey) -> _Refusal | None:
    voters = replica.voters
    if voters.get(key.id) is None:
        return None
    return ErrorCode.DUPLICATE_VOTER, (
        f"The voter id for {key.text} is already part of the set of voters {_names(voters)}."
    )


def on_remove_request(replica: Replica, token: int, request: RemoveVoterRequest) -> None:
    """Begin to remove a voter, which may be this leader."""
    state = _leader(replica, token, request.epoch)
    if state is None:
        return
    key, voters = request.key, replica.voters
    why: _Refusal | None
    if not _is_usable(key):
        why = ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
    else:
        why = (
            _not_now(replica, state)
            or _not_dynamic(replica, "removing")
            or _not_yet(replica, state)
        )
    if why is None and (not voters.has(key) or len(voters.voters) == 1):
        why = (
            ErrorCode.VOTER_NOT_FOUND,
            (f"Cannot remove voter {key.text} from the set of voters {_names(voters)}"),
        )
    if why is not None:
        _refuse(replica, token, why)
        return
    left = voters.without(key.id)
    why = _few_left(replica, state, left)
    if why is not None:
        _refuse(replica, token, why)
        return
    _begin(replica, state, token, request, left)


def _few_left(replica: Replica, state: Leader, left: VoterSet) -> _Refusal | None:
    """Refuse a removal that the remaining voters could not commit.

    DIFFERS: Kafka makes it. If the wrong one of two voters is named, the quorum then depends on the
    lost one, and no leader is elected again.
    """
    since_ms = replica.now_ms - check_quorum_ms(replica)
    fetching = left.has(replica.key) + sum(
        one.last_fetch_ms is not None and one.last_fetch_ms > since_ms
        for key, one in state.voters.items()
        if left.has(key)
    )
    if fetching >= left.majority:
        return None
    return ErrorCode.REQUEST_TIMED_OUT, (
        f"Aborted remove voter operation since {fetching} of the voters that would be left, "
        f"{_names(left)}, fetch; {left.majority} must"
    )


def on_update_request(replica: Replica, token: int, request: UpdateVoterRequest) -> None:
    """Take a voter's endpoints and kraft.version range.

    The report of a static voter is kept in memory, until kraft.version is raised or the epoch ends.
    """
    state = _leader(replica, token, request.epoch)
    if state is None:
        return
    said, voters = request.voter, replica.voters
    level = replica.history.latest.kraft_version
    lowest, highest = said.kraft_versions
    why: ErrorCode | None = None
    if (
        not _is_usable(said.key)
        or _node_of(replica, said) is None
        or not 0 <= lowest <= highest
    ):  # fmt: skip
        why = ErrorCode.INVALID_REQUEST
    elif _not_now(replica, state) or (level > 0 and _not_yet(replica, state)):
        why = ErrorCode.REQUEST_TIMED_OUT
    elif not said.can_do(level):
        why = ErrorCode.INVALID_REQUEST
    elif level == 0 and not _is_its_disk(state, said.key):
        why = ErrorCode.REQUEST_TIMED_OUT  # it asks again; the other disk reported first
    known = voters.get(said.key.id)
    if why is None and (known is None or not voters.has(said.key)):
        why = ErrorCode.VOTER_NOT_FOUND
    if why is not None:
        _refuse(replica, token, (why, _NO_TEXT))
    elif level == 0 or known is None or known.equals_reported(said):
        if level == 0:
            state.reported[said.key.id] = said
        replica.respond(token, VoterResponse(ErrorCode.NONE, replica.standing()))
    else:
        _begin(replica, state, token, request, voters.with_voter(said))


def on_upgrade_request(replica: Replica, token: int, request: UpgradeKraftVersionRequest) -> None:
    """Begin to finalise kraft.version 1, and put the static voters into the log."""
    state = _leader(replica, token, request.epoch)
    if state is None:
        return
    level, wanted = replica.history.latest.kraft_version, request.level
    voters = _reported_voters(replica, state)
    why = _not_now(replica, state) or _not_yet(replica, state)
    if why is None and wanted < level:
        why = (
            ErrorCode.INVALID_UPDATE_VERSION,
            (
                f"Invalid upgrade of kraft.version from version {level} to {wanted} because the "
                "new version is a downgrade"
            ),
        )
    if why is None and wanted > level:
        why = _not_all(replica, state, voters, wanted)
    if why is not None:
        _refuse(replica, token, why)
    elif wanted == level or request.validate_only:
        replica.respond(token, VoterResponse(ErrorCode.NONE, replica.standing()))
    else:
        _begin(replica, state, token, request)
        for voter in voters.voters:
            node = None if voter.key == replica.key else _node_of(replica, voter)
            if node is not None:
                assert state.change is not None
                state.change.asked |= {voter.key}
                replica.send(node, ApiVersionsRequest(voter.key))
        _continue_with_upgrade(replica, state)


def _reported_voters(replica: Replica, state: Leader) -> VoterSet:
    """The static voters as reported; one without a report has no directory id."""
    silent = (Voter(ReplicaKey(one), kraft_versions=(0, 0)) for one in replica.voters.ids)
    found = {one.key.id: state.reported.get(one.key.id, one) for one in silent}
    if replica.key.id in found:
        found[replica.key.id] = replica.own_voter
    return VoterSet(tuple(found.values()))


def _continue_with_upgrade(replica: Replica, state: Leader) -> None:
    """Append the voters once all of them have answered at their reported addresses.

    With a wrong address in the log the next leader could not be found, not even after restarts.
    """
    change = state.change
    assert change is not None
    if not change.asked:
        change.voters = _reported_voters(replica, state)
        replica.do(AwaitAppend())


def _is_its_disk(state: Leader, key: ReplicaKey) -> bool:
    """True if no other disk fetches for a static voter."""
    progress = state.voters.get(ReplicaKey(key.id))
    known = ZERO_UUID if progress is None else progress.directory_id
    return known in (ZERO_UUID, key.directory_id)


def _not_all(replica: Replica, state: Leader, voters: VoterSet, level: int) -> _Refusal | None:
    """Reason why not all voters can be in the log with a kraft.version; None if they can.

    DIFFERS: Kafka takes a voter's report even if the voter is gone or its address is wrong. In the
    log such a voter is a dead one.
    """
    places = Counter(_place(replica, one) for one in voters.voters)
    for voter in voters.voters:
        place = _place(replica, voter)
        if voter.key.directory_id == ZERO_UUID:
            text = "has not said in this epoch that it does: is it down, or just restarted?"
        elif not voter.can_do(level):
            lowest, highest = voter.kraft_versions
            text = f"supports {lowest} to {highest}"
        elif place is None:
            text = f"does not say where it listens as {replica.config.listener_name}"
        elif places[place] > 1 or place[0] in _ANY_HOST:
            text = f"says that it listens at {place[0]}:{place[1]}, where others do not find it"
        elif voter.key != replica.key and not _is_there(replica, state, voter.key):
            text = "is not there any more, or has another disk than the one that it named"
        else:
            continue
        return _unsupported(voter.key.id, level, text)
    return None


def _unsupported(voter_id: int, level: int, text: str) -> _Refusal:
    return ErrorCode.INVALID_UPDATE_VERSION, (
        f"Invalid upgrade of kraft.version to {level} because not all of the voters support it: "
        f"voter {voter_id} {text}"
    )


def _place(replica: Replica, voter: Voter) -> tuple[str, int] | None:
    node = _node_of(replica, voter)
    return None if node is None else (node.host, node.port)


def _is_there(replica: Replica, state: Leader, key: ReplicaKey) -> bool:
    """True if a static voter fetches, with this disk."""
    progress = state.voters.get(ReplicaKey(key.id))
    heard_ms = None if progress is None else progress.last_fetch_ms
    is_late = heard_ms is None or replica.now_ms - heard_ms >= check_quorum_ms(replica)
    return not is_late and _is_its_disk(state, key)


def _leader(replica: Replica, token: int, epoch: int) -> Leader | None:
    """Return this replica's state if it leads `epoch`; otherwise refuse the request."""
    error = leader_error(replica, epoch)
    if error is not None:
        replica.respond(token, VoterResponse(error, replica.standing()))
        return None
    assert isinstance(replica.state, Leader)
    return replica.state


def _is_usable(key: ReplicaKey) -> bool:
    return key.id >= 0 and key.directory_id != ZERO_UUID


def _node_of(replica: Replica, voter: Voter) -> Node | None:
    """Return the reported address of a voter on this leader's listener."""
    for one in voter.endpoints:
        if one.name == replica.config.listener_name:
            return Node(voter.key.id, one.host, one.port)
    return None


def _not_now(replica: Replica, state: Leader) -> _Refusal | None:
    if state.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, (
            "Request timed out waiting for leader to handle previous voter change request"
        )
    if state.high_watermark < 0:
        return ErrorCode.REQUEST_TIMED_OUT, (
            "Request timed out waiting for leader to establish HWM and fence previous voter changes"
        )
    return None


def _not_dynamic(replica: Replica, what: str) -> _Refusal | None:
    level = replica.history.latest.kraft_version
    if level > 0:
        return None
    return ErrorCode.UNSUPPORTED_VERSION, (
        f"Cluster doesn't support {what} voter because the kraft.version feature is {level}"
    )


def _not_yet(replica: Replica, state: Leader) -> _Refusal | None:
    end = replica.history.latest_end
    if end <= state.high_watermark:
        return None
    return ErrorCode.REQUEST_TIMED_OUT, (
        f"Request timed out waiting for voters to commit the latest voter change at {end - 1} "
        f"with HWM {state.high_watermark}"
    )


def _refuse(replica: Replica, token: int, why: _Refusal) -> None:
    replica.respond(token, VoterResponse(why[0], replica.standing(), why[1]))


def _names(voters: VoterSet) -> str:
    return f"[{', '.join(voter.key.text for voter in voters.voters)}]"


# -- progress ---------------------------------------------------------------------------------


def _begin(
    replica: Replica,
    state: Leader,
    token: int,
    request: ChangeRequest,
    voters: VoterSet | None = None,
) -> None:
    deadline_ms = replica.now_ms + replica.config.request_timeout_ms
    state.change = VoterChange(token, request, deadline_ms, voters)
    if voters is not None:
        replica.do(AwaitAppend())


def on_versions(replica: Replica, pending: Pending, response: ApiVersionsResponse | None) -> None:
    """Take the kraft.version range of the new voter, or the failure to get it."""
    asked, state = pending.request, replica.state
    if response is None or response.error is not ErrorCode.NONE:
        replica.back_off(pending.to)
    change = state.change if isinstance(state, Leader) else None
    if change is None or change.voters is not None:
        return
    assert isinstance(asked, ApiVersionsRequest)
    request = change.request
    assert isinstance(state, Leader)
    if isinstance(request, UpgradeKraftVersionRequest) and asked.voter in change.asked:
        change.asked -= {asked.voter}
        if response is None or response.error is not ErrorCode.NONE:
            text = f"does not answer at {pending.to.host}:{pending.to.port}, where it says it is"
            _end(replica, state, *_unsupported(asked.voter.id, request.level, text))
        else:
            _continue_with_upgrade(replica, state)
    if not isinstance(request, AddVoterRequest) or request.voter.key != asked.voter:
        return  # of an earlier change
    error = ErrorCode.NETWORK_EXCEPTION if response is None else response.error
    versions = None if response is None else response.kraft_versions
    voter = Voter(asked.voter, request.voter.endpoints, versions or (0, 0))
    level = replica.history.latest.kraft_version
    if error is not ErrorCode.NONE:
        why: _Refusal | None = (
            ErrorCode.REQUEST_TIMED_OUT,
            f"Aborted add voter operation since API_VERSIONS returned an error {error.name}",
        )
    elif not voter.can_do(level):
        lowest, highest = voter.kraft_versions
        why = (
            ErrorCode.INVALID_REQUEST,
            (
                f"Aborted add voter operation for {asked.voter.text} since the kraft.version range "
                f"(min: {lowest}, max: {highest}) doesn't support the finalized version {level}"
            ),
        )
    else:
        why = _lags(replica, state, asked.voter)
    if why is not None:
        _end(replica, state, *why)
        return
    change.voters = replica.voters.with_voter(voter)
    replica.do(AwaitAppend())


def _lags(replica: Replica, state: Leader, key: ReplicaKey) -> _Refusal | None:
    """Refuse a controller that lags or does not fetch: commits would wait for it."""
    known = state.observers.get(key)
    caught_up_ms = None if known is None else known.last_caught_up_ms
    if caught_up_ms is not None and replica.now_ms < caught_up_ms + check_quorum_ms(replica):
        return None
    return ErrorCode.REQUEST_TIMED_OUT, (
        f"Aborted add voter operation for {key.text} since it is lagging behind"
    )


def on_append_granted(replica: Replica) -> None:
    """Append the voters, which are in force at once, if the change is still pending."""
    state = replica.state
    change = state.change if isinstance(state, Leader) else None
    if change is None or change.voters is None or change.end_offset >= 0:
        return
    assert isinstance(state, Leader)
    base, epoch, request = replica.log.end_offset, replica.epoch, change.request
    level = request.level if isinstance(request, UpgradeKraftVersionRequest) else None
    why = None if level is None else _not_all(replica, state, change.voters, level)
    if why is not None:  # a voter was lost meanwhile
        _end(replica, state, *why)
        return
    change.end_offset = base + (1 if level is None else 2)
    replica.do(AppendVoters(epoch, base, change.voters, level))
    append(replica, BatchFacts(base, change.end_offset, epoch, level, change.voters))
    replica.flush()
    follow_voters(replica, state)
    waits = request.waits_for_commit if isinstance(request, AddVoterRequest) else True
    if isinstance(request, UpdateVoterRequest) or not waits:
        _end(replica, state, ErrorCode.NONE)


def poll(replica: Replica, state: Leader) -> None:
    """Answer a change that is committed, or whose deadline has passed."""
    change = state.change
    if change is None:
        return
    if 0 <= change.end_offset <= state.high_watermark:
        _end(replica, state, ErrorCode.NONE)
    elif replica.now_ms >= change.deadline_ms:
        # An appended change stays, and may still be committed, as in Kafka.
        _end(replica, state, ErrorCode.REQUEST_TIMED_OUT)


def _end(replica: Replica, state: Leader, error: ErrorCode, text: str = _NO_TEXT) -> None:
    assert state.change is not None
    replica.respond(state.change.token, VoterResponse(error, replica.standing(), text))
    state.change = None
