"""Copies in two tiers: what is acknowledged stays, whoever is lost or moves, and the store, too.

Only real processes, with a real store, show what a kill or a cut leaves half done in files and
objects, and that readers of the store get every byte meanwhile.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.quorum.tier_rounds import run_rounds
from tests.support.quorum.tier_stores import DirectoryStore, TierStore, store_in_s3
from tests.support.quorum.tiering import STORE, tiers_linked
from tests.support.rounds import IS_PROVING, rounds
from tests.support.stores.s3 import CREDENTIALS
from tests.support.workers import TURN

ROUNDS = rounds("TIDEMARK_TIERED_REPLICA_ROUNDS", quick=5, full=60)
MOVES = rounds("TIDEMARK_MOVE_ROUNDS", quick=3, full=30)
KINDS = ("directory", "s3")
NOW = int(os.environ.get(TURN, "0"))
"""Without `make prove` each turn has one kind of store, and other losses."""

pytestmark = [pytest.mark.lasts(seconds=150)]


@pytest.fixture
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TierStore]:
    kind: str = request.param
    if not IS_PROVING and kind != KINDS[NOW % len(KINDS)]:
        pytest.skip(f"{kind} has the next turn")
    if kind == "directory":
        yield DirectoryStore(tmp_path / STORE)
        return
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with store_in_s3(request.getfixturevalue("s3")) as in_s3:
        yield in_s3


@pytest.mark.parametrize("store", KINDS, indirect=True)
@pytest.mark.rounds(seconds=1_200)
@pytest.mark.patience(seconds=300 + 45 * ROUNDS)
async def test_brokers_controllers_tiers_and_the_store_are_lost(
    tmp_path: Path, store: TierStore
) -> None:
    """`python -m tests.support.quorum.tier_rounds --combined --replicas 3 --seed N` repeats it."""
    seed = 1 if IS_PROVING else NOW
    print(f"--seed {seed}")
    async with tiers_linked(tmp_path, store) as cluster:
        await run_rounds(cluster, seed=seed, rounds=ROUNDS, replicas=3, say=print)


@pytest.mark.rounds(seconds=600)
@pytest.mark.patience(seconds=300 + 45 * MOVES)
async def test_they_are_lost_while_replicas_move(tmp_path: Path) -> None:
    """`… --combined --replicas 2 --moves --seed N` repeats it: of three nodes one has no copy.

    Only here a broker is killed between any two steps of a real move, and its files are counted.
    """
    seed = 1 if IS_PROVING else NOW
    print(f"--seed {seed}")
    async with tiers_linked(tmp_path, DirectoryStore(tmp_path / STORE)) as cluster:
        await run_rounds(cluster, seed=seed, rounds=MOVES, replicas=2, has_moves=True, say=print)
