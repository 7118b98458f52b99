"""Stories of the model that one node can play, about claims and old directories; see
docs/tiering.md §3."""

from pathlib import Path

from rlmm import records
from tests.support.tier.dying_tier import Life, Machine, objects_of, stopped

HOUR_MS = 3_600_000
INTERVAL_S = 300


class StartsBeside(Life):
    """Between its look at the store's claim and its own claim another machine starts."""

    def __init__(self, machine: Machine, other: Life) -> None:
        super().__init__(machine)
        self.other = other
        self.steps.before["write claim"] = lambda: self.other.live(1)


def test_k8_of_two_that_start_at_once_one_is_unhealthy_at_the_next_claim(tmp_path: Path) -> None:
    machine = stopped(tmp_path)
    copy = machine.copied_to(tmp_path / "copy")
    other = Life(copy)
    one = StartsBeside(machine, other).live(1)
    assert one.reasons == other.reasons == [], "nobody can know yet"
    other.proceed(INTERVAL_S)
    one.proceed(INTERVAL_S)
    assert bool(one.reasons) != bool(other.reasons)


def test_d19_an_unknown_log_start_is_settled_when_nothing_is_left_to_copy(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path / "data", tmp_path / "store")
    machine.log.append(3)
    machine.log.lose_log_start()
    life = Life(machine).live()
    assert life.reasons == []
    assert machine.log.log_start_known
    assert machine.log.log_start == 0
    assert objects_of(machine) == set()


def test_d24_older_directories_under_an_older_clock_write_no_fence_again(
    tmp_path: Path,
) -> None:
    """Counter, leader epoch and clock say what they said before; the metadata topic does not."""
    machine = stopped(tmp_path)
    before = machine.copied_to(tmp_path / "before")
    machine.log.fill(1)
    Life(machine).live().buried(lands=True)
    machine.check_readable()
    before.topic, before.log = machine.topic, machine.log  # only counter and clock are of before
    before.wall_ms -= HOUR_MS
    objects, records_before = objects_of(machine), len(machine.topic.logs[0])
    life = Life(before).live(20)
    assert any("older copy" in reason for reason in life.reasons)
    assert objects_of(machine) == objects
    assert len(machine.topic.logs[0]) == records_before
    values = [each.value for each in machine.topic.logs[0] if each.value is not None]
    pairs = [records.decode(value).stamp.fence for value in values]
    assert pairs == sorted(pairs)
