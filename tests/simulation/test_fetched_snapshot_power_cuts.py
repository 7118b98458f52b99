"""A replica loads its leader's snapshot, and loses power or is killed in any operation of that.

`make prove` cuts in every operation, `make test` in every third.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import UnusableMetadataError
from runtime.disk import Disk
from tests.support.rounds import rounds
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.driven_quorum import DrivenNode, DrivenQuorum

pytestmark = pytest.mark.lasts(seconds=20)

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


def ahead_of_a_snapshot(root: Path) -> tuple[DrivenQuorum, DrivenNode]:
    """A deposed leader with segments that it never committed, beyond the snapshot of the next."""
    quorum = DrivenQuorum(root, [1, 2, 3])
    quorum.config = MetadataLogConfig(segment_bytes=300)
    quorum.start()
    late = quorum.elect()
    quorum.cut = {(late.id, other) for other in quorum.members}
    quorum.cut |= {(other, late.id) for other in quorum.members}
    for _ in range(12):
        late.propose_noop()
        quorum.advance(10)
    assert len(list(late.directory.glob("*.log"))) > 3
    late.kill()
    quorum.cut.clear()
    leader = quorum.elect()
    for _ in range(2):
        leader.propose_noop()
        quorum.advance(600)
    snapshot_id = leader.make_snapshot()
    assert snapshot_id.end_offset < late.opened.log.end_offset
    leader.propose_noop()
    quorum.advance(500)
    return quorum, late


WORLDS: dict[str, Callable[[Path], tuple[DrivenQuorum, DrivenNode]]] = {
    "empty": partial(behind_a_snapshot, with_own_records=False),
    "behind": partial(behind_a_snapshot, with_own_records=True),
    "ahead": ahead_of_a_snapshot,
}


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
@pytest.mark.parametrize("world", WORLDS)
def test_the_next_life_has_all_that_is_committed(tmp_path: Path, kills: bool, world: str) -> None:
    for operation in range(1, OPERATIONS_MAX, STEP):
        root = tmp_path / str(operation)
        quorum, late = WORLDS[world](root)
        home, rng = late.directory.parent, SeededRng(operation)
        disk = PowerCutDisk(home, rng, operation, kills=kills)
        was_off = life_without_power(quorum, late, disk)
        if was_off:  # the start after it is cut short, too
            again = PowerCutDisk(home, rng, 1 + int(rng.random() * 40), kills=kills)
            life_without_power(quorum, late, again)
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
