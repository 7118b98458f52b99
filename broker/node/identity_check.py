"""Finds another process that runs under this controller's identity, by the leader's description.

Two nodes under one id count as one voter. Then records that a majority committed may be on too few
disks. A copied directory votes twice. Only the leader has a list of replicas that fetch, so its
description of the quorum is polled. An entry with this node's id or directory whose last Fetch
advances is alive. Pure; `process.identity_watch` polls.

DIFFERS: Kafka lets both take part.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.raft.voters import ReplicaKey

ALIVE_AFTER: Final = 2
"""Advances of an entry that prove it alive: the last request of a dead process may come late."""
SAME_FETCH_MS: Final = 20
"""Times this close are those of one Fetch.

A leader computes them again for each description, by two clocks.
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this node.

    Attributes:
        place: Path of its `meta.properties`, for messages.
        may_vote: It is a controller.
    """

    key: ReplicaKey
    cluster_id: str
    place: str
    may_vote: bool = True


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """A replica in the leader's description.

    Attributes:
        last_fetch_ms: The leader's wall clock; -1 never.
    """

    key: ReplicaKey
    is_voter: bool
    last_fetch_ms: int


@dataclass(frozen=True, slots=True)
class LeaderView:
    """One description of the quorum by its leader.

    Attributes:
        leader_address: Of its answer, for messages.
        now_ms: The leader's wall clock.
    """

    leader_id: int
    leader_address: str
    epoch: int
    now_ms: int
    replicas: tuple[SeenReplica, ...]

    @property
    def leader(self) -> str:
        """The leader, for messages."""
        return f"the leader (node {self.leader_id} at {self.leader_address}, epoch {self.epoch})"


@dataclass(slots=True)
class Doubts:
    """The result of the polls so far.

    Attributes:
        me: This node.
        recent_ms: A replica without a Fetch for so long counts as dead.
        takes_part: This node fetches itself: an entry with its own key is its own.
        problem: Why this node must end; None so far.
        is_open: The last poll left a doubt, which another may settle.
        is_listed: The last poll named this very replica.
    """

    me: Identity
    recent_ms: int
    takes_part: bool = False
    problem: str | None = None
    is_open: bool = False
    is_listed: bool = False
    _leader: tuple[int, int] = (-1, -1)
    _before: dict[ReplicaKey, int] = field(default_factory=dict)
    _signs: dict[ReplicaKey, int] = field(default_factory=dict)

    def take(self, view: LeaderView) -> None:
        """Take one more description; sets `problem`, `is_open` and `is_listed`."""
        if (view.leader_id, view.epoch) != self._leader:
            self._leader = (view.leader_id, view.epoch)
            self._before.clear()
            self._signs.clear()
        me = self.me.key
        self.is_open = False
        self.is_listed = any(one.key == me for one in view.replicas)
        am_voter = any(one.key == me and one.is_voter for one in view.replicas)
        for one in view.replicas:
            if one.is_voter and one.key.id == me.id and not self.me.may_vote:
                self.problem = self._voters_id(view)
            elif self._is_rival(one, am_voter=am_voter) and self._lives(one, view):
                self.problem = self._sentence(one, view)
        if self.problem is not None:
            self.is_open = False

    def _voters_id(self, view: LeaderView) -> str:
        # Records that this broker has fetched would count as if that voter had them on its disk.
        return (
            f"node.id={self.me.key.id} ({self.me.place}) is only a broker, but {view.leader} has a "
            f"voter of that id. Give this broker another id, or run it with "
            "process.roles=broker,controller if it is that voter"
        )

    def _is_rival(self, one: SeenReplica, *, am_voter: bool) -> bool:
        me, other = self.me.key, one.key
        if other.directory_id == ZERO_UUID:
            return False  # of a version without directory ids; it may be this node
        if other == me:
            return not self.takes_part
        if other.id != me.id and other.directory_id != me.directory_id:
            return False
        # Of two that take part, the one without the vote ends; of two without, one of them.
        if not self.takes_part or one.is_voter:
            return True
        return not am_voter and (other.id, other.directory_id) < (me.id, me.directory_id)

    def _lives(self, one: SeenReplica, view: LeaderView) -> bool:
        if one.key.id == view.leader_id and one.is_voter:
            return True
        before = self._before.setdefault(one.key, one.last_fetch_ms)
        if one.last_fetch_ms > before + SAME_FETCH_MS:
            self._before[one.key] = one.last_fetch_ms
            self._signs[one.key] = self._signs.get(one.key, 0) + 1
        if self._signs.get(one.key, 0) >= ALIVE_AFTER:
            return True
        if one.last_fetch_ms >= 0 and view.now_ms - one.last_fetch_ms < self.recent_ms:
            self.is_open = True
        return False

    def _sentence(self, one: SeenReplica, view: LeaderView) -> str:
        me, mine = self.me.key, uuid_to_text(self.me.key.directory_id)
        theirs = uuid_to_text(one.key.directory_id)
        if one.key == me:
            return (
                f"node.id={me.id} with directory.id={mine} ({self.me.place}) runs already: "
                f"{view.leader} hears from it, while this process has not begun. Is this directory "
                "a copy? Format one of its own"
            )
        if one.key.id == me.id:
            return (
                f"node.id={me.id} is taken: here it has directory.id={mine} ({self.me.place}), but "
                f"{view.leader} hears from a node {one.key.id} with directory.id={theirs}. Give "
                "this one another id, or stop the other"
            )
        return (
            f"directory.id={mine} ({self.me.place}) of this node.id={me.id} is that of node.id="
            f"{one.key.id}, too, from whom {view.leader} hears: the directory, or its "
            "meta.properties, was copied. Format one of its own"
        )


def other_voters(me: Identity, voters: Collection[int], view: LeaderView) -> str | None:
    """Why the leader's voters differ from `controller.quorum.voters` here; None: they do not.

    Args:
        me: This node.
        voters: Ids of the setting; empty: it is not set.
        view: The leader's description.
    """
    theirs = sorted(one.key.id for one in view.replicas if one.is_voter)
    if not voters or sorted(voters) == theirs:
        return None
    return (
        f"controller.quorum.voters of node.id={me.key.id} names {sorted(voters)}, but "
        f"{view.leader} has the voters {theirs}: a majority of the one list is none of the other. "
        "Make the setting the same on all nodes"
    )


def other_cluster(me: Identity, clusters: Mapping[str, str], needed: int) -> str | None:
    """Why this node belongs to another cluster than the controllers that it asked.

    A single controller of another cluster among several is wrong itself, and must not end this
    node.

    Args:
        me: This node.
        clusters: The cluster id that each of the other controllers answered, by its address.
        needed: Number of them that must be of another cluster.

    Returns:
        None: it belongs to theirs, or too few have answered.
    """
    others = {address: one for address, one in clusters.items() if one != me.cluster_id}
    if len(others) < needed:
        return None
    named = ", ".join(f"{address} (cluster.id={one})" for address, one in sorted(others.items()))
    return (
        f"cluster.id={me.cluster_id} ({me.place}), but these controllers of "
        f"controller.quorum.voters or controller.quorum.bootstrap.servers belong to another: "
        f"{named}. Correct the addresses, or format the directory with that cluster id"
    )
