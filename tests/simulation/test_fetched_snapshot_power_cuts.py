"""A replica loads its leader's snapshot, and loses power or is killed in any operation of that.

`make prove` cuts in every operation, `make test` in every third.
"""

from pathlib import Path

import pytest

from metadata_topic.quorum.errors import UnusableMetadataError
from runtime.disk import Disk
from runtime.sim.dice import SeededDice
from runtime.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.rounds import rounds
from tests.support.worlds.driven_quorum import DrivenNode, DrivenQuorum

OPERATIONS_MAX = 200
STEP = rounds("FETCHED_SNAPSHOT_STEP", quick=3, full=1)


def behind_a_snapshot(root: Path, *, with_own_records: bool) -> tuple[DrivenQuorum, DrivenNode]:
    """A quorum whose leader's log begins at a snapshot, and a voter that is down and behind it."""
    quorum = DrivenQuorum(root, [1, 2, 3])
    quorum.start()
    leader = quorum.elect()
    late = next(node for node in quorum.members.values() if node is not leader)
    if with_own_records:
        leader.propose_noop()
        quorum.advance(1_000)
    late.kill()
    for _ in range(3):
        leader.propose_noop()
    quorum.advance(1_000)
    leader.make_snapshot()
    leader.propose_noop()
    quorum.advance(500)
    return quorum, late


def life_without_power(quorum: DrivenQuorum, late: DrivenNode, disk: PowerCutDisk) -> bool:
    """Let it load the snapshot until its disk is off; False if the disk stayed on."""
    late.disk = disk
    try:
        late.start()
        quorum.advance(3_000)
    except PowerCutError:
        pass
    late.kill()
    quorum.advance(10)
    return disk.is_off


@pytest.mark.rounds(seconds=120)
@pytest.mark.parametrize("kills", [False, True], ids=["power", "kill"])
@pytest.mark.parametrize("with_own_records", [False, True], ids=["empty", "behind"])
def test_the_next_life_has_all_that_is_committed(
    tmp_path: Path, kills: bool, with_own_records: bool
) -> None:
    for operation in range(1, OPERATIONS_MAX, STEP):
        root = tmp_path / str(operation)
        quorum, late = behind_a_snapshot(root, with_own_records=with_own_records)
        home = late.directory.parent
        disk = PowerCutDisk(home, SeededDice(operation), operation, kills=kills)
        was_off = life_without_power(quorum, late, disk)
        late.disk = Disk()
        try:
            late.start()
        except UnusableMetadataError as error:
            raise AssertionError(f"no start after operation {operation}: {error}") from error
        quorum.advance(20_000)
        leader = quorum.leader()
        assert leader is not None
        assert leader.driver is not None
        assert late.driver is not None, operation
        assert late.failures == [], operation
        end = leader.driver.core.high_watermark
        assert late.driver.core.high_watermark == end == leader.opened.log.end_offset, operation
        assert late.log_bytes == leader.log_bytes, operation
        parts = [one.name for one in late.directory.iterdir() if one.name.endswith(".part")]
        assert parts == [], operation
        if not was_off:
            assert operation > 20, "loading a snapshot takes more operations than that"
            return
    raise AssertionError("it never came to an end")
