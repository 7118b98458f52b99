"""A quorum whose voters change: its states, its steps, and what is promised after each.

A step of a model is one of: an election that is won, a Fetch that brings one entry, an advance of
the high watermark, a voter change that is appended, a leader that resigns, a crash, a lost disk.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from metadata_topic.raft.voters import majority_offset
from tests.model.explore import Broken, Label
from tests.model.voters.rules import Rules

Voters = tuple[int, ...]


class Entry(NamedTuple):
    """A batch of the log: the leader change of its epoch, or with `voters` a voter change."""

    epoch: int
    voters: Voters | None = None


Log = tuple[Entry, ...]


class Node(NamedTuple):
    """A replica; all of it is on its disk but `leads` and `watermark`.

    Attributes:
        watermark: that it knows, exclusive.
        remembered: voters that a truncation did not take back, of a mutant; else None.
        is_lost: its disk is gone, and the node with it: on a new disk it is another replica.
    """

    epoch: int
    log: Log
    leads: bool = False
    watermark: int = 0
    remembered: Voters | None = None
    is_lost: bool = False


class Quorum(NamedTuple):
    """Everything.

    Attributes:
        nodes: by id, from 1.
        committed: the longest log that was told to be committed.
        leaders: who led which epoch.
    """

    nodes: tuple[Node, ...]
    committed: Log = ()
    leaders: tuple[tuple[int, int], ...] = ()
    changes: int = 0
    crashes: int = 0
    disks: int = 0


class ChangingVoters:
    """Explores under some rules; see `tests.model.explore.Model`."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.ids = (*rules.voters, *rules.observers)

    def start(self) -> Quorum:
        """Epoch 1 is led by the first voter; nobody has its first batch yet."""
        nodes = [Node(1, ())] * len(self.ids)
        nodes[0] = Node(1, (Entry(1),), leads=True)
        return Quorum(tuple(nodes), leaders=((1, 1),))

    def steps(self, state: Quorum) -> Iterator[tuple[Label, Callable[[], Quorum | None]]]:
        for one in self._leading(state):
            for other in self.ids:
                if self._may_fetch(state, other, one):
                    yield (
                        ("fetch", other, "of", one),
                        lambda f=other, t=one: self._fetch(state, f, t),
                    )
            yield ("commit", one), lambda one=one: self._commit(state, one)
            if self._is_to_resign(state, one):
                yield ("resign", one), lambda one=one: _with(state, one, leads=False)
            for voters in self._next_voters(state, one):
                yield (
                    ("change", one, voters),
                    lambda one=one, voters=voters: self._change(state, one, voters),
                )
            if state.crashes < self.rules.crashes:
                yield ("crash", one), lambda one=one: self._crash(state, one)
        for one in self.ids:
            for voting in self._majorities(state, one):
                yield (
                    ("elect", one, voting),
                    lambda one=one, voting=voting: self._elect(state, one, voting),
                )
            if state.disks < self.rules.disks and not self._node(state, one).is_lost:
                yield ("disk", one), lambda one=one: self._lose_disk(state, one)

    def covers(self, state: Quorum) -> bool:
        return True

    def is_fair(self, label: Label) -> bool:
        return label[0] in ("fetch", "commit", "resign")

    def rest(self, state: Quorum) -> None:
        """All is committed, or somebody can be elected."""
        if any(one.is_lost for one in state.nodes):
            return
        for one in self._leading(state):
            node = self._node(state, one)
            if node.watermark == len(node.log):
                return
        if not any(True for one in self.ids for _ in self._majorities(state, one)):
            raise Broken("nobody leads, and nobody can be elected")

    # -- what a node knows

    def _node(self, state: Quorum, one: int) -> Node:
        return state.nodes[one - 1]

    def _leading(self, state: Quorum) -> list[int]:
        return [one for one in self.ids if self._node(state, one).leads]

    def voters_of(self, node: Node) -> Voters:
        """The voters of a node: by its whole log, committed or not."""
        if node.remembered is not None:
            return node.remembered
        end = len(node.log) if self.rules.in_force_when_appended else node.watermark
        return _latest(node.log[:end], self.rules.voters)

    # -- elections

    def _may_stand(self, state: Quorum, one: int) -> bool:
        node = self._node(state, one)
        if node.is_lost or node.leads:
            return False
        if one in self.voters_of(node):
            return True
        # Its removal may be in no other log, so that the others cannot do without it.
        return self.rules.stands_until_removal_is_committed and one in self._before(node)

    def _before(self, node: Node) -> Voters:
        """The voters before the last change, where that may be taken back as far as it knows."""
        changed = [at for at, each in enumerate(node.log) if each.voters is not None]
        if not changed or changed[-1] < node.watermark:
            return ()
        return _latest(node.log[: changed[-1]], self.rules.voters)

    def _majorities(self, state: Quorum, one: int) -> Iterator[Voters]:
        if not self._may_stand(state, one):
            return
        node = self._node(state, one)
        voters = self.voters_of(node)
        granting = [voter for voter in voters if self._grants(state, voter, one)]
        yield from combinations(granting, len(voters) // 2 + 1)

    def _grants(self, state: Quorum, voter: int, candidate: int) -> bool:
        mine, its = self._node(state, voter), self._node(state, candidate)
        if mine.is_lost:
            return False
        if not self.rules.votes_as_an_observer and voter not in self.voters_of(mine):
            return False
        return voter == candidate or _place(mine.log) <= _place(its.log)

    def _elect(self, state: Quorum, one: int, voting: Voters) -> Quorum | None:
        epoch = 1 + max(self._node(state, each).epoch for each in {one, *voting})
        if epoch > self.rules.epochs:
            return None
        if epoch in dict(state.leaders):
            raise Broken(f"epoch {epoch} has two leaders")
        log = self._node(state, one).log
        if log[: len(state.committed)] != state.committed:
            raise Broken(f"{one} leads epoch {epoch} without all that is committed")
        for each in voting:
            state = _with(state, each, epoch=epoch, leads=False)
        state = _with(state, one, epoch=epoch, leads=True, log=(*log, Entry(epoch)))
        return state._replace(leaders=(*state.leaders, (epoch, one)))

    # -- replication

    def _may_fetch(self, state: Quorum, follower: int, leader: int) -> bool:
        mine, its = self._node(state, follower), self._node(state, leader)
        return follower != leader and not mine.is_lost and mine.epoch <= its.epoch

    def _fetch(self, state: Quorum, follower: int, leader: int) -> Quorum:
        mine, its = self._node(state, follower), self._node(state, leader)
        same = 0
        while same < min(len(mine.log), len(its.log)) and mine.log[same] == its.log[same]:
            same += 1
        if same < mine.watermark:
            raise Broken(f"{follower} drops what it knows to be committed")
        log = its.log[: same + 1]
        remembered = None
        if not self.rules.taken_back_by_truncation:
            remembered = log[-1].voters or self.voters_of(mine)
        return _with(
            state, follower, epoch=its.epoch, leads=False, log=log, remembered=remembered,
            watermark=max(mine.watermark, min(its.watermark, len(log))),
        )  # fmt: skip

    def _commit(self, state: Quorum, one: int) -> Quorum:
        node = self._node(state, one)
        voters = self.voters_of(node)
        ends = [self._end_of(state, each, node) for each in voters]
        majority = len(voters) // 2 + 1
        if one not in voters and not self.rules.leader_outside_not_counted:
            ends.append(len(node.log))
        end = majority_offset(ends, majority)
        if end <= node.watermark or node.log[end - 1].epoch != node.epoch:
            return state
        told, known = node.log[:end], state.committed
        if told[: len(known)] != known[: len(told)]:
            raise Broken(f"{one} commits another log than was committed")
        longest = told if len(told) > len(known) else known
        return _with(state._replace(committed=longest), one, watermark=end)

    def _end_of(self, state: Quorum, voter: int, leader: Node) -> int:
        """What the leader knows a voter to have: only of its own epoch."""
        node = self._node(state, voter)
        if node is leader:
            return len(leader.log)
        follows = node.epoch == leader.epoch and not node.is_lost
        return len(node.log) if follows and leader.log[: len(node.log)] == node.log else -1

    # -- changes of voters

    def _next_voters(self, state: Quorum, one: int) -> Iterator[Voters]:
        node, rules = self._node(state, one), self.rules
        if state.changes == rules.changes:
            return
        if rules.own_epoch_committed and node.watermark <= node.log.index(Entry(node.epoch)):
            return
        if rules.one_at_a_time and any(each.voters for each in node.log[node.watermark :]):
            return
        voters = set(self.voters_of(node))
        for other in self.ids:
            after = voters ^ {other}
            if after:
                yield tuple(sorted(after))
            if not rules.by_one_voter:
                for second in self.ids:
                    if second > other and (both := after ^ {second}):
                        yield tuple(sorted(both))

    def _change(self, state: Quorum, one: int, voters: Voters) -> Quorum:
        node = self._node(state, one)
        state = state._replace(changes=state.changes + 1)
        leads = self.rules.leads_until_committed or one in voters
        remembered = None if self.rules.taken_back_by_truncation else voters
        log = (*node.log, Entry(node.epoch, voters))
        return _with(state, one, log=log, leads=leads, remembered=remembered)

    def _is_to_resign(self, state: Quorum, one: int) -> bool:
        node = self._node(state, one)
        return one not in _latest(node.log[: node.watermark], self.rules.voters)

    # -- faults

    def _crash(self, state: Quorum, one: int) -> Quorum:
        return _with(state._replace(crashes=state.crashes + 1), one, leads=False, watermark=0)

    def _lose_disk(self, state: Quorum, one: int) -> Quorum:
        state = state._replace(disks=state.disks + 1)
        if self.rules.directory_ids:
            return _with(state, one, is_lost=True, leads=False)
        return _with(state, one, epoch=0, log=(), leads=False, watermark=0)


def _latest(log: Log, first: Voters) -> Voters:
    return next((each.voters for each in reversed(log) if each.voters is not None), first)


def _place(log: Log) -> tuple[int, int]:
    return (log[-1].epoch if log else 0, len(log))


def _with(state: Quorum, one: int, **changed: object) -> Quorum:
    nodes = list(state.nodes)
    nodes[one - 1] = nodes[one - 1]._replace(**changed)  # type: ignore[arg-type]
    return state._replace(nodes=tuple(nodes))
