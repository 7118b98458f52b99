"""Role of a node in its quorum, from the configuration and the content of its disk.

Pure. A node that must not start is refused here, before anything is written. A replica with a wrong
identity, or without its last vote, could vote twice.

Voters in the log (kraft.version 1) override `controller.quorum.voters`, which then only gives
addresses to ask.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.quorum.errors import QuorumConfigError, UnusableMetadataError
from metadata_topic.raft.events import EPOCH_MAX, ElectionState
from metadata_topic.raft.messages import BOOTSTRAP_ID, NOBODY, Node, SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

ABSTAINED: Final = ReplicaKey(2**31 - 1, b"\xff" * 16)
"""The candidate in a file of `abstain`: a node that does not exist."""

NO_VOTERS = VoterSet(())


class MissingQuorumStateError(UnusableMetadataError):
    """quorum-state is missing although the log has records: this node may have voted."""


class LostVotersError(UnusableMetadataError):
    """The format step's file with the first voters is damaged, and is needed."""


class Membership(Enum):
    """Role of a node in its quorum at the start."""

    SOLE_VOTER = "the only voter"
    VOTER = "a voter"
    OBSERVER_CONTROLLER = "a controller without a vote"
    OBSERVER_BROKER = "a broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """Settings from the configuration.

    Attributes:
        is_controller: `process.roles` has `controller`.
        static_voters: `controller.quorum.voters`.
        bootstrap_servers: `controller.quorum.bootstrap.servers`, ids -1.
        listener_name: Listener of the controllers; the name of static voters' endpoints.
    """

    is_controller: bool
    static_voters: tuple[Node, ...] = ()
    bootstrap_servers: tuple[Node, ...] = ()
    listener_name: str = "CONTROLLER"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundQuorum:
    """Facts about the quorum on the disk.

    Attributes:
        directory: The metadata directory, for messages.
        election: Content of quorum-state; None if there is no such file.
        history: For `Started`; voters None for kraft.version 0.
        end_offset: Of the log (exclusive).
        newest_snapshot: None if there is none.
        lost_voters: Why the file with the first voters cannot be read, if no other record has the
            voters; otherwise empty.
    """

    directory: str
    election: ElectionState | None
    history: tuple[tuple[int, QuorumFacts], ...]
    end_offset: int
    newest_snapshot: SnapshotId | None
    lost_voters: str = ""

    @property
    def has_content(self) -> bool:
        """True if there are records besides those of the format step."""
        return self.end_offset > 0 or self.newest_snapshot not in {None, BOOTSTRAP_ID}


@dataclass(frozen=True, slots=True)
class QuorumStart:
    """Plan of a start.

    Attributes:
        election: For `Started`.
        history: For `Started`, with static voters filled in.
        bootstrap: For `RaftConfig`.
        static_nodes: For `RaftConfig`.
        notes: Warnings for the operator, one sentence each.
    """

    membership: Membership
    election: ElectionState
    history: tuple[tuple[int, QuorumFacts], ...]
    bootstrap: tuple[Node, ...]
    static_nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()

    @property
    def voters(self) -> VoterSet:
        """Voters as known at the start."""
        return self.history[-1][1].voters or NO_VOTERS

    @property
    def controllers(self) -> tuple[Node, ...]:
        """Addresses of controllers, of this node too if it is a voter.

        Includes the bootstrap servers: all voters may have been replaced while this node was down.
        """
        voters = tuple(
            Node(voter.key.id, voter.endpoints[0].host, voter.endpoints[0].port)
            for voter in self.voters.voters
            if voter.endpoints
        )
        places = {(one.host, one.port) for one in voters}
        others = (one for one in self.bootstrap if (one.host, one.port) not in places)
        return self.static_nodes or (*voters, *others)


def plan_quorum_start(me: ReplicaKey, settings: QuorumSettings, found: FoundQuorum) -> QuorumStart:
    """Decide the role of a node in its quorum.

    Args:
        me: `node.id` and the directory id of the metadata directory.
        settings: Of the configuration.
        found: Facts on the disk.

    Raises:
        QuorumConfigError: Configuration and disk contradict each other; names both.
        MissingQuorumStateError: This node may have given a vote that it no longer has.
    """
    _refuse_an_id_twice(settings)
    static = static_voter_set(settings.static_voters, settings.listener_name)
    history = tuple(
        (offset, facts if facts.kraft_version > 0 else replace(facts, voters=static))
        for offset, facts in found.history
    )
    latest = history[-1][1]
    is_static = latest.kraft_version == 0
    voters = latest.voters or NO_VOTERS
    if not settings.is_controller:
        _check_broker(me, voters, found)
    if is_static:
        _check_static(me, settings, found)
    else:
        _check_directory(me, voters, found)
    membership = _membership(me, settings, voters)
    if membership is Membership.SOLE_VOTER:
        if latest.in_log:
            _refuse_part_of_a_log(me, found)
        else:
            _refuse_follower_alone(me, found)
    _check_vote(me, membership, found)
    others = tuple(node for node in settings.static_voters if node.id != me.id)
    return QuorumStart(
        membership,
        found.election or ElectionState(),
        history,
        settings.bootstrap_servers or tuple(replace(node, id=NOBODY) for node in others),
        settings.static_voters if is_static else (),
        _notes(me, membership, voters),
    )


def static_voter_set(nodes: Sequence[Node], listener_name: str) -> VoterSet:
    """Voters of `controller.quorum.voters`, with endpoints and without directory ids."""
    return VoterSet(
        tuple(
            Voter(ReplicaKey(node.id), (VoterEndpoint(listener_name, node.host, node.port),))
            for node in sorted(nodes, key=lambda node: node.id)
        )
    )


def _refuse_an_id_twice(settings: QuorumSettings) -> None:
    ids = {node.id for node in settings.static_voters}
    if len(ids) < len(settings.static_voters):
        raise QuorumConfigError(f"controller.quorum.voters={_shown(settings)}: an id appears twice")


def _membership(me: ReplicaKey, settings: QuorumSettings, voters: VoterSet) -> Membership:
    if not settings.is_controller:
        return Membership.OBSERVER_BROKER
    if voters.is_sole(me):
        return Membership.SOLE_VOTER
    return Membership.VOTER if voters.has(me) else Membership.OBSERVER_CONTROLLER


def _check_broker(me: ReplicaKey, voters: VoterSet, found: FoundQuorum) -> None:
    if voters.get(me.id) is not None:
        raise QuorumConfigError(
            f"node.id={me.id} is only a broker (process.roles), but the voters are "
            f"{list(voters.ids)} ({found.directory}): what it fetches would count for the voter of "
            "that id. Give the broker another node.id and a directory of its own"
        )
    election = found.election or ElectionState()
    if election.voted is not None or election.leader_id == me.id:
        raise QuorumConfigError(
            f"{found.directory}/quorum-state has a vote of epoch {election.epoch}: the directory "
            f"is that of a controller, and node.id={me.id} is only a broker (process.roles). If it "
            f"is no controller any more, remove {found.directory}: a broker fetches it again"
        )


def _refuse_follower_alone(me: ReplicaKey, found: FoundQuorum) -> None:
    """Refuse a follower as sole voter: the end of its log may never have been committed.

    Only a majority determines that. If its own log names it as the only voter, it is the majority.
    """
    election = found.election or ElectionState()
    if _names(election) and _follows_others(me, election):
        raise QuorumConfigError(
            f"node.id={me.id} would be the only voter, but {found.directory}/quorum-state says "
            f"that it followed others in epoch {election.epoch}: the directory is that of a broker "
            "or of one of several controllers. Start it as what it was; if none of the others is "
            f"left, move {found.directory}/quorum-state away, and what only they had is lost"
        )


def _refuse_part_of_a_log(me: ReplicaKey, found: FoundQuorum) -> None:
    """Refuse a log that was fetched again in part, up to where this node was the only voter.

    The leader that it followed became a voter later in the log.
    """
    election = found.election or ElectionState()
    voters = {one for _, facts in found.history for one in (facts.voters or NO_VOTERS).ids}
    strangers = _names(election) - voters - {ABSTAINED.id}
    if strangers and _follows_others(me, election):
        raise QuorumConfigError(
            f"node.id={me.id} would be the only voter, but {found.directory}/quorum-state says "
            f"that it followed node {min(strangers)} in epoch {election.epoch}, which the log up "
            f"to offset {found.end_offset} does not know: later records are missing here, unless "
            "that node was removed from the voters, and this is the only one left. If so, move "
            f"{found.directory}/quorum-state away. If not, nothing but this node is in doubt: "
            f"remove {found.directory} and meta.properties, format with "
            "--no-initial-controllers, and replace the voter: `tidemark metadata-quorum "
            "remove-controller`, then `add-controller`"
        )


def _names(election: ElectionState) -> set[int]:
    voted_id = None if election.voted is None else election.voted.id
    return {one for one in (election.leader_id, voted_id) if one is not None}


def _follows_others(me: ReplicaKey, election: ElectionState | None) -> bool:
    """True if this node neither led the epoch of its quorum-state nor stood in it."""
    return election is not None and me.id not in _names(election)


def _check_static(me: ReplicaKey, settings: QuorumSettings, found: FoundQuorum) -> None:
    ids = [node.id for node in settings.static_voters]
    if not settings.is_controller:
        return
    first_voters = f"{found.directory}/{BOOTSTRAP_ID.file_name}"
    if found.lost_voters:
        raise LostVotersError(
            f"{first_voters} cannot be read: {found.lost_voters}. It holds the voters, and the log "
            "is empty. Nothing was changed. Restore it from a copy: every controller that was "
            "formatted with the same voters has the same file"
        )
    if ids and me.id not in ids:
        raise QuorumConfigError(
            f"controller.quorum.voters={_shown(settings)} does not contain this controller, "
            f"node.id={me.id}: add it on all controllers, or correct node.id"
        )
    if not ids and not settings.bootstrap_servers:
        raise QuorumConfigError(
            f"no voters: the directory was formatted without --standalone, or {first_voters} is "
            "missing; and neither controller.quorum.voters nor "
            "controller.quorum.bootstrap.servers is set"
        )
    election = found.election or ElectionState()
    voted_id = None if election.voted is None else election.voted.id
    if not ids and me.id in {election.leader_id, voted_id}:
        raise QuorumConfigError(
            f"node.id={me.id} stood for election in epoch {election.epoch} ({found.directory}/"
            "quorum-state), but neither the log nor the empty controller.quorum.voters names the "
            f"voters: set controller.quorum.voters as it was, or restore {first_voters} if there "
            "was one"
        )


def _shown(settings: QuorumSettings) -> str:
    return ",".join(f"{node.id}@{node.host}:{node.port}" for node in settings.static_voters)


def _check_directory(me: ReplicaKey, voters: VoterSet, found: FoundQuorum) -> None:
    mine = uuid_to_text(me.directory_id)
    for voter in voters.voters:
        is_same_disk = voter.key.directory_id == me.directory_id != ZERO_UUID
        if is_same_disk and voter.key.id != me.id:
            raise QuorumConfigError(
                f"directory id {mine} is that of voter {voter.key.id}, but this node has "
                f"node.id={me.id}: the directory, or its meta.properties, was copied. Format this "
                "node's own directory with --no-initial-controllers"
            )
    known = voters.get(me.id)
    is_alone = known is not None and not voters.has(me) and len(voters.voters) == 1
    # A new disk may have the log only up to where the former disk was the only voter.
    if known is not None and is_alone and not _follows_others(me, found.election):
        raise QuorumConfigError(
            f"the only voter is node {me.id} with directory id "
            f"{uuid_to_text(known.key.directory_id)}, this directory has {mine}: no other node can "
            "lead. Start it with the directory that it had"
        )


def _check_vote(me: ReplicaKey, membership: Membership, found: FoundQuorum) -> None:
    if found.election is not None or not found.has_content:
        return
    if membership in {Membership.SOLE_VOTER, Membership.OBSERVER_BROKER}:
        return  # no other node asks for its vote, or it has none
    raise MissingQuorumStateError(
        f"{found.directory}/quorum-state is missing, but the log ends at offset "
        f"{found.end_offset}: node {me.id} is {membership.value} among several and may have given "
        "its vote in an epoch that it does not know any more. Nothing was changed. Restore the "
        "file from a copy of this very directory, or, with the highest epoch that any other "
        "controller knows, `tidemark directories abstain --epoch N`: it then gives no vote up to "
        "that epoch"
    )


def _notes(me: ReplicaKey, membership: Membership, voters: VoterSet) -> tuple[str, ...]:
    if membership is not Membership.OBSERVER_CONTROLLER:
        return ()
    known = voters.get(me.id)
    if known is None:
        return (f"node {me.id} is no voter of {list(voters.ids)}: it observes",)
    return (
        f"voter {me.id} has directory id {uuid_to_text(known.key.directory_id)}, this directory "
        f"{uuid_to_text(me.directory_id)}: it observes until it is made a voter",
    )


class AbstentionError(TidemarkError):
    """Such a file is not written; nothing was changed."""


def abstain_until(epoch: int, last_epoch: int) -> ElectionState:
    """Return the election state in which the vote of `epoch` is spent.

    Args:
        epoch: Highest epoch known to any other controller.
        last_epoch: Highest epoch in this node's log and snapshots.

    Raises:
        AbstentionError: `epoch` is out of range.
    """
    if not last_epoch <= epoch <= EPOCH_MAX:
        raise AbstentionError(
            f"--epoch={epoch}: must be at least {last_epoch}, the last epoch in this node's log, "
            f"and at most {EPOCH_MAX}; it is the highest epoch that any other controller knows"
        )
    return ElectionState(epoch, None, ABSTAINED)
