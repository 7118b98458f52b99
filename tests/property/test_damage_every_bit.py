"""Every file of the log directories, every bit of it flipped and cut at every length.

After a clean stop and after a kill a start serves what was acknowledged, or says what is offline;
see `tests/support/damage/bits_check.py`. Places are drawn by a seed, which is printed;
TIDEMARK_ALL_BITS=1 takes them all, which takes an hour.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.damage.bits import COMMON, RARE, Lane, make_bases, start
from tests.support.damage.bits_check import validate
from tests.support.damage.places import drawn, quick_directory
from tests.support.rounds import IS_PROVING

SHARE = 64 if IS_PROVING else 128

pytestmark = [pytest.mark.lasts(seconds=12), pytest.mark.timeout(6 * 3600)]


@pytest.fixture
def root() -> Iterator[Path]:
    with quick_directory() as path:
        yield path


@pytest.mark.rounds(seconds=8)
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("lanes", [COMMON, RARE], ids=["common", "rare"])
def test_what_was_acknowledged_is_served_or_offline(
    lanes: Sequence[Lane], is_clean: bool, root: Path
) -> None:
    [base] = [one for one in make_bases(root / "base", lanes) if one.is_clean == is_clean]
    work, wrong, count = root / "work", [], 0
    for case in drawn(base.files, share=SHARE):
        found = start(work, base, {case.file: case.data})
        wrong += [f"{case}: {complaint}" for complaint in validate(base, case, found)]
        count += 1
    print(f"{count} starts")
    assert not wrong, f"{len(wrong)} defects:\n" + "\n".join(wrong[:40])


@pytest.mark.parametrize("lanes", [COMMON, RARE], ids=["common", "rare"])
def test_what_is_not_damaged_is_whole(lanes: Sequence[Lane], root: Path) -> None:
    for base in make_bases(root / "base", lanes):
        found = start(root / "work", base, {})
        assert found.refused == ""
        assert [seen.end for seen in found.partitions.values()] == [  # type: ignore[union-attr]
            known.end for known in base.promised.values()
        ]
