"""The product's metadata quorum in simulated clusters: logs, images, controller, brokers.

make simulate SEEDS=1000-1299 EVENTS=5000    # many seeds
"""

import pytest

from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile, dump_quorum_state
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.voters import VoterSet
from tests.simulation.run import main
from tests.support.planted_bugs import recorded_seeds
from tests.support.quorum_world.history import Said
from tests.support.quorum_world.plan import QuorumPlan, quorum_plan_of
from tests.support.quorum_world.seeds import Outcome, replay_line, run_plan
from tests.support.quorum_world.world import QuorumWorld, simulated

pytestmark = pytest.mark.lasts(seconds=20)

EVENTS = 2500
LEADER_MS_P99_MAX = 2000 + 5 * 1000
"""One fetch timeout and five election timeouts."""


def hold(seed: int, events: int) -> Outcome:
    """Run a seed to its end."""
    plan = quorum_plan_of(seed)
    outcome = run_plan(plan, events)
    replay = replay_line(outcome, events, plan)
    assert outcome.violation is None, f"{outcome.violation}\nreplay: {replay}"
    return outcome


@pytest.mark.parametrize("seed", sorted(recorded_seeds()))
def test_every_rule_holds_after_every_event(seed: int) -> None:
    """In the seeds that find a planted bug; `make simulate-bugs` tells how to record them again."""
    hold(seed, EVENTS)


@pytest.mark.long(seconds=180)
@pytest.mark.parametrize("block", range(4))
def test_every_rule_holds_in_many_seeds(block: int) -> None:
    seeds = range(1000 + block * 25, 1025 + block * 25)
    outcomes = [hold(seed, 5000) for seed in seeds]
    waits = sorted(one.calm.leader_ms for one in outcomes if one.calm is not None)
    assert len(waits) == len(seeds)
    assert waits[-1] <= 60_000
    assert waits[len(waits) * 9 // 10] <= LEADER_MS_P99_MAX
    assert sum(one.voter_faults > 0 for one in outcomes) > len(seeds) // 2


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dynamic", [True, False])
def test_an_undisturbed_quorum_elects_once_and_does_what_it_is_asked(
    voters: int, dynamic: bool
) -> None:
    plan = QuorumPlan(
        voters=tuple(range(1, voters + 1)),
        observers=(101,),
        dynamic=dynamic,
        propose_every_ms=30,
        brokers=2,
        snapshot_bytes=2_000,
        retention_bytes=1_000,
        segment_bytes=1_000,
    )
    with simulated():
        world = QuorumWorld(plan)
        world.start()
        world.run_for(20_000)
        world.calm_down()
    assert world.oracle.elections == 1
    assert all(node.disk.start_offset > 0 for node in world.nodes.values())
    told = [call.said for call in world.workload.clients.calls]
    assert told.count(Said.DONE) > 20
    assert Said.UNKNOWN not in told
    assert world.oracle.reference.brokers


@pytest.mark.parametrize("heir", [False, True])
def test_a_follower_finds_a_leader_that_moves_while_it_leads(heir: bool) -> None:
    """A third one knows the new address; where the leader was nobody is met, or that follower."""
    with simulated():
        world = QuorumWorld(QuorumPlan(dynamic=False))
        world.start()
        assert world.run_until(lambda: world.leader is not None)
        world.run_for(1_000)
        leader = world.leader
        assert leader is not None
        epoch = leader.core.epoch
        told, follower = (node for node in world.nodes.values() if node is not leader)
        world.addresses.move(leader, follower.id if heir else None)
        world.crash_for(told, 20)
        world.run_for(world.liveness.limits.seek)
        silent_ms = follower.local_ms() - follower.core.replica.leader_answered_ms
    assert (leader.leads, leader.core.epoch) == (True, epoch)
    assert world.addresses.is_met_at(leader, follower.core.replica.state.leader)
    assert silent_ms < follower.config.fetch_timeout_ms


def test_a_broken_rule_is_found_made_small_and_replayed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(self: QuorumStateFile, election: ElectionState, **_facts: object) -> None:
        """Writes votes without an fsync."""
        data = dump_quorum_state(election, kraft_version=1, voters=VoterSet(()))
        self._disk.atomic_write(self._path, data, durable=False)

    monkeypatch.setattr(QuorumStateFile, "write", forgets)
    assert main(["--seeds", "0-9", "--events", "900"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "violations=1" in lines[0]
    replay = lines[-1].removeprefix("replay: python -m tests.simulation.run ")
    assert main(replay.split()) == 1
    assert "a vote is durable before it leaves" in capsys.readouterr().out
