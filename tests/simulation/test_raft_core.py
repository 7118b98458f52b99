"""The Raft core in simulated quorums: every rule of the oracle after every step, then calm.

pytest tests/simulation/test_raft_core.py --seed=8812 --events=5000    # one seed
make simulate WORLD=core SEEDS=1000-1299 EVENTS=5000                   # many
"""

from typing import Any

import pytest

from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import Respond
from metadata_topic.raft.events import Event
from metadata_topic.raft.messages import VoteResponse
from metadata_topic.raft.voters import ReplicaKey
from tests.simulation.run import main
from tests.support.planted_bugs import recorded_seeds
from tests.support.raft.kinds import CORE, core_kind
from tests.support.raft.plan import plan_of
from tests.support.raft.seeds import replay_line, run_plan
from tests.support.raft.small import SmallQuorum

pytestmark = pytest.mark.lasts(seconds=8)

EVENTS = 2500
RECORDED = recorded_seeds("core")
"""Those that find a planted bug; `make simulate-bugs` tells how to record them anew."""
LEADER_MS_P99_MAX = 2000 + 5 * 1000
"""One fetch timeout and five election timeouts."""
LEADER_MS_P90_MAX = 2600
"""Of 100 seeds; they have 1,644 to 2,070 ms, with elections twice as long 3,055 to 4,165 ms.

The 99th percentile alone says little: with elections twice as long it is still below its limit. It
is 3.2 to 4 s. Seed 1305 has the longest wait of 400, 6.5 s: of three voters one lost its disk and
another the leader's last answers, so it asks for pre-votes, and only the leader could grant one.
"""


def hold(seed: int, events: int) -> int:
    """Run a seed; how long it took to a leader once it was calm."""
    plan = plan_of(seed)
    outcome = run_plan(CORE, plan, events)
    replay = f"pytest tests/simulation/test_raft_core.py --seed={seed} --events={events}"
    assert outcome.violation is None, (
        f"{outcome.violation}\nreplay: {replay}\n   or: {replay_line(CORE, outcome, events, plan)}"
    )
    assert outcome.calm is not None
    return outcome.calm.leader_ms


def seeds_of(request: pytest.FixtureRequest, usual: range) -> tuple[range, int]:
    asked = request.config.getoption("--seed", default=None)
    events = request.config.getoption("--events", default=None) or EVENTS
    return (usual if asked is None else range(asked, asked + 1)), events


@pytest.mark.parametrize("block", range(4))
def test_every_rule_holds_after_every_step(request: pytest.FixtureRequest, block: int) -> None:
    seeds, events = seeds_of(request, range(block * 10, block * 10 + 10))
    for seed in seeds:
        hold(seed, events)


@pytest.mark.parametrize("seed", RECORDED)
def test_a_recorded_seed_holds(seed: int) -> None:
    hold(seed, EVENTS)


@pytest.mark.long(seconds=150)
@pytest.mark.parametrize("block", range(4))
def test_every_rule_holds_in_many_seeds(block: int) -> None:
    waits = sorted(hold(seed, 5000) for seed in range(1000 + block * 100, 1100 + block * 100))
    assert waits[89] <= LEADER_MS_P90_MAX
    assert waits[98] <= LEADER_MS_P99_MAX


class HastyCore(RaftCore):
    """Lets votes out before they are on disk."""

    def step(self, event: Event, now_ms: int) -> list[Any]:
        return [
            Respond(effect.token, effect.response, after=0)
            if isinstance(effect, Respond) and isinstance(effect.response, VoteResponse)
            else effect
            for effect in super().step(event, now_ms)
        ]


def hasty(key: ReplicaKey, config: RaftConfig) -> HastyCore:
    return HastyCore(key, config)


def test_a_broken_core_is_found_made_small_and_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"core": core_kind(hasty)}
    assert main(["core", "--seeds", "0-9", "--events", "400"], kinds=kinds) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "violations=1" in lines[0]
    replay = lines[-1].removeprefix("replay: python -m tests.simulation.run ")
    assert main(replay.split(), kinds=kinds) == 1
    assert "a vote is durable before it leaves" in capsys.readouterr().out


def test_what_a_slow_disk_or_a_pause_held_up_ends_with_the_faults() -> None:
    quorum = SmallQuorum(3)
    world, leader = quorum.world, quorum.elect()
    slow, paused = (node for node in world.nodes.values() if node is not leader)
    world.crash_for(leader, 100_000)  # the others elect one of them
    slow.state_is_slow_until = world.now_us + 60_000_000
    world._disk_us = (1_000_000, 0)
    assert world.run_until(lambda: slow._persisting is not None, 10_000)
    paused.paused_until = world.now_us + 50_000_000
    world.run_for(2_100)  # what is due meanwhile is put off to the end of the pause
    assert slow._persisting is not None
    began = world.now_us
    world.heal()
    world.run_for(250)
    assert slow._persisting is None, "its write went on"
    assert paused._tick_at is None or paused._tick_at > began, "its timers stood still"
    calm = world.calm_down()
    assert calm.leader_ms <= LEADER_MS_P99_MAX


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_an_undisturbed_quorum_elects_and_commits(voters: int, dynamic: bool) -> None:
    quorum = SmallQuorum(voters, observers=2, dynamic=dynamic)
    quorum.commit(2)
    quorum.commit(1)
    assert quorum.world.oracle.elections == 1
