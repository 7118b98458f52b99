"""How long a quorum may be without a leader, and a node without following one that it can reach.

Both are bounded while nothing disturbs those whom it takes: they run on disks that work, are not
paused, and a request between any two of them arrives where it should. Others may fail meanwhile.
Looked at every few milliseconds of simulated time.
"""

from itertools import combinations, permutations
from math import ceil, log
from typing import TYPE_CHECKING, Any

from metadata_topic.raft.role_states import Follower
from metadata_topic.raft.roles import Role
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.voter_rules import majority

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode

LOOK_US = 50_000
NEVER = 1 << 60
SLOW_DISK = 60
"""How often the usual time an fsync of a slow disk takes."""


def _in_a_row(fails: float) -> int:
    """How often what fails with this chance is tried until it succeeds, but once in 100,000."""
    return ceil(log(1e-5) / log(fails)) if fails else 1


class Limits:
    """How long it may take, in milliseconds of the world; see docs/testing.md for what was seen.

    Attributes:
        unled: a healthy majority without a leader.
        follow: until who knows the address of its leader fetches from it.
        seek: the same where only others know it.
    """

    def __init__(self, plan: Any, config: Any) -> None:
        # An exchange fails when a message is lost, or comes late as 1 of 50 does (`SimNet`).
        fails = 1 - (1 - plan.loss) ** 2 + (0.04 if plan.delay_us[1] >= 20_000 else 0.0)
        tries = _in_a_row(fails)
        rounds = _in_a_row(1 - (1 - fails) ** 2)  # pre-votes and votes
        silent = (len(plan.leaders) - 1) // 2  # so many may be asked in vain
        round_ms = 2 * config.election_timeout_ms
        slower = 1 + plan.clock_skew
        self.unled = int(slower * (config.fetch_timeout_ms + (rounds + 4) * round_ms))
        self.follow = int(
            slower * (config.fetch_timeout_ms + (tries + silent) * config.request_timeout_ms)
        )
        # Before that a fetch timeout at the old place, and pre-votes in vain.
        self.seek = self.follow + int(slower * (config.fetch_timeout_ms + round_ms))


class Liveness:
    """See the module.

    Attributes:
        limits: of this world.
        leader: who leads a majority, as (node, epoch); None: nobody.
        longest_ms: the longest waits that there were, by what was waited for.
    """

    def __init__(self, world: Any) -> None:
        self._world = world
        plan, nodes = world.plan, world.nodes
        self.limits = Limits(plan, next(iter(nodes.values())).config)
        self.longest_ms = {"unled": 0, "follow": 0, "seek": 0}
        self._slow_us = SLOW_DISK * (plan.disk_us[0] + 2 * plan.disk_us[1])
        self._next_us = 0
        self._lives = dict.fromkeys(nodes, -1)
        self._fit_since = dict.fromkeys(nodes, NEVER)
        self._lost: dict[tuple[int, int], int] = {}  # when one last did not know another's address
        self._shaken_us = self._led_us = self._leads_since = 0
        self.leader: tuple[int, int] | None = None
        self._followed_us = dict.fromkeys(nodes, 0)
        self._follows_since = dict.fromkeys(nodes, NEVER)

    def look(self) -> None:
        """Validate, if it is time."""
        now_us = self._world.now_us
        if now_us < self._next_us:
            return
        self._next_us = now_us + LOOK_US
        self._look_at_nodes(now_us)
        leader = self._found_leader(now_us)
        if leader is None:
            self.leader = None
            self._is_led_in_time(now_us)
            return
        self._led_us = now_us
        if self.leader != (leader.id, leader.core.epoch):
            self.leader = leader.id, leader.core.epoch
            self._leads_since = now_us
            self._follows_since = dict.fromkeys(self._world.nodes, NEVER)
        late = [
            node
            for node in self._world.nodes.values()
            if node is not leader and not self._follows(now_us, node, leader)
        ]
        for node in late:
            if self._world.runs(node):
                self._follows_in_time(now_us, node, leader)

    # -- what is disturbed ----------------------------------------------------------------------

    def _look_at_nodes(self, now_us: int) -> None:
        world, fit_since = self._world, self._fit_since
        if world.net.loss > world.plan.loss:
            self._shaken_us = now_us
        for node in world.nodes.values():
            is_new = node.life != self._lives[node.id]
            self._lives[node.id] = node.life
            if is_new or node.closing or node.disk_failures or not world.runs(node):
                fit_since[node.id] = now_us
            ends = max(node.paused_until, node.log_is_slow_until, node.state_is_slow_until)
            if ends > now_us:
                fit_since[node.id] = max(ends + self._slow_us, fit_since[node.id])
            if node.disk_fault is not None:
                fit_since[node.id] = max(node.disk_fault[0], fit_since[node.id])
        if world.addresses.changes or world.plan.change_every_ms:
            voters = [world.nodes[one] for one in world.plan.leaders]
            for one in filter(world.runs, world.nodes.values()):
                for other in voters:
                    if other is not one and not world.addresses.is_met_at(
                        other, one.where(other.id)
                    ):
                        self._lost[one.id, other.id] = now_us

    def _way_since(self, one: int, other: int) -> int:
        """Since when nothing is cut between two nodes."""
        cuts = self._world.net.cuts
        return max(cuts.get((one, other), 0), cuts.get((other, one), 0))

    def _sets(self) -> list[tuple[list["QuorumNode"], int]]:
        """Of each set that may be in force those that run and have a vote, and its majority.

        In a dynamic quorum a vote goes with the disk.
        """
        world = self._world
        running = list(filter(world.runs, world.nodes.values()))
        rules = world.oracle.voters
        return [
            ([node for node in running if world.oracle.who(node.key) in keys], majority(keys))
            for keys in rules.in_use
        ]

    def reaches_since(self, node: "QuorumNode", leader: "QuorumNode") -> int:
        """Since when a node is answered by the leader of a healthy majority; or `NEVER`."""
        fit = self._fit_since
        since = max(self._leads_since, self._shaken_us, fit[node.id], fit[leader.id])
        since = max(since, self._healthy_since(self._world.now_us))
        if node is not leader:
            since = max(since, self._follows_since[node.id], self._way_since(node.id, leader.id))
        return min(since, NEVER)

    # -- a leader -------------------------------------------------------------------------------

    def _found_leader(self, now_us: int) -> "QuorumNode | None":
        """Who leads and, with those that follow in its epoch, is a majority."""
        world = self._world
        running = list(filter(world.runs, world.nodes.values()))
        led = [one for one in running if one.leads and one.paused_until <= now_us]
        leader = max(led, key=lambda one: int(one.core.epoch), default=None)
        if leader is None:
            return None
        keys, epoch = world.oracle.voters.of(leader), leader.core.epoch
        count = sum(
            one is leader or (one.core.role is Role.FOLLOWER and one.core.epoch == epoch)
            for one in running
            if world.oracle.who(one.key) in keys
        )
        return leader if count >= majority(keys) else None

    def _is_led_in_time(self, now_us: int) -> None:
        healthy_since = self._healthy_since(now_us)
        ms = (now_us - max(healthy_since, self._led_us, self._shaken_us)) // 1000
        self.longest_ms["unled"] = max(self.longest_ms["unled"], ms)
        if ms > self.limits.unled:
            raise Violation(
                "a healthy majority has a leader in time", f"{ms} ms: {self._world.states}"
            )

    def _healthy_since(self, now_us: int) -> int:
        """Since when there is a majority of voters that nothing disturbs."""
        return max(self._fit_majority_since(now_us, *one) for one in self._sets())

    def _fit_majority_since(self, now_us: int, voters: list["QuorumNode"], needed: int) -> int:
        fit = [one.id for one in voters if self._fit_since[one.id] < now_us]
        best = NEVER
        for some in combinations(fit, needed):
            ways = [
                max(self._way_since(*pair), self._lost.get(pair, 0))
                for pair in permutations(some, 2)
            ]
            best = min(best, max(*ways, *(self._fit_since[one] for one in some), 0))
        return best

    # -- who follows it -------------------------------------------------------------------------

    def _follows(self, now_us: int, node: "QuorumNode", leader: "QuorumNode") -> bool:
        """Whether a node is answered by the leader, where that is met."""
        if self._world.runs(node) and node.core.epoch == leader.core.epoch:
            replica = node.core.replica
            is_met = isinstance(replica.state, Follower) and self._world.addresses.is_met_at(
                leader, replica.state.leader
            )
            silent_ms = node.local_ms() - replica.leader_answered_ms
            is_heard = replica.leader_answered_ms >= 0 and silent_ms < node.config.fetch_timeout_ms
            if is_met and is_heard:
                self._followed_us[node.id] = now_us
                self._follows_since[node.id] = min(self._follows_since[node.id], now_us)
                return True
        self._follows_since[node.id] = NEVER
        return False

    def _follows_in_time(self, now_us: int, node: "QuorumNode", leader: "QuorumNode") -> None:
        is_ahead = node.core.epoch > leader.core.epoch
        if is_ahead and not all(node in voters for voters, _ in self._sets()):
            return  # it waits until the quorum's epoch has risen: it may not stand
        fit = self._fit_since
        since = max(
            fit[node.id],
            fit[leader.id],
            self._shaken_us,
            self._leads_since,
            self._followed_us[node.id],
            self._way_since(node.id, leader.id),
        )
        what, limit_ms = "follow", self.limits.follow
        if is_ahead:
            limit_ms += self.limits.unled
        if self._lost.get((node.id, leader.id), 0) > since:
            what, limit_ms = "seek", self.limits.seek
            since = max(since, self._told_since(node))
        ms = (now_us - since) // 1000
        self.longest_ms[what] = max(self.longest_ms[what], ms)
        if ms > limit_ms:
            raise Violation(
                "who can reach its leader follows it in time",
                f"{node} not in {ms} ms: {self._world.states}",
            )

    def _told_since(self, node: "QuorumNode") -> int:
        """Since when a voter that follows the leader can tell a node where it is."""
        return min(
            (
                max(
                    self._follows_since[one],
                    self._way_since(node.id, one),
                    self._lost.get((node.id, one), 0),
                )
                for one in self._world.plan.leaders
                if one != node.id
            ),
            default=NEVER,
        )
