"""A small quorum on a perfect network, to try the core by hand.

    quorum = SmallQuorum(voters=3)
    leader = quorum.elect()              # runs until somebody leads and has committed
    quorum.commit(2)                     # proposes a batch of two records, runs until all have it
    quorum.world.run_for(500)            # milliseconds of virtual time
    quorum.world.crash_for(quorum.world.nodes[1], 3000)
    print(quorum.transcript())           # roles, crashes; `trace_lines` keeps events and effects
    print(quorum.world.states)

Messages take 0.5 ms, disks 0.5 ms, clocks agree. After every step all rules of the oracle are
checked: a `Violation` names the one that is broken. `quorum.world.net.cut(1, 2, until_us)` and
`quorum.world.net.only = lambda source, target, message: ...` hold messages back.
"""

from tests.support.raft.plan import Plan
from tests.support.raft.sim_node import SimNode
from tests.support.raft.world import CoreFactory, World, real_core


class SmallQuorum:
    """See the module."""

    def __init__(
        self,
        voters: int = 3,
        observers: int = 0,
        *,
        dynamic: bool = True,
        seed: int = 0,
        trace_lines: int = 400,
        make_core: CoreFactory = real_core,
    ) -> None:
        plan = Plan(
            seed=seed,
            voters=tuple(range(1, voters + 1)),
            observers=tuple(range(101, 101 + observers)),
            dynamic=dynamic,
        )
        self.world = World(plan, make_core=make_core, trace_lines=trace_lines)
        self.world.story = []
        self.world.start()

    def elect(self, within_ms: int = 60_000) -> SimNode:
        """Run until there is a leader that has committed something."""
        world = self.world
        assert world.run_until(lambda: world.leader is not None, within_ms), world.states
        leader = world.leader
        assert leader is not None
        return leader

    def commit(self, records: int = 1, within_ms: int = 10_000) -> int:
        """Propose a batch at the leader and run until all nodes know it committed; its end."""
        leader = self.elect()
        assert self.world.propose(leader, (records,))
        end = leader.disk.end_offset
        world = self.world
        done = world.run_until(lambda: world.oracle.high_watermark >= end and world.all_equal())
        assert done, world.states
        return end

    def transcript(self) -> str:
        """What happened, a line each; virtual milliseconds first."""
        return "\n".join(self.world.story or ())
