"""Three combined nodes of earlier days start one by one as today's, and lose nothing."""

import asyncio
from pathlib import Path

import pytest

from tests.support.quorum.serving import create, until_true
from tests.support.samples.upgraded_quorum import (
    DATA,
    GONE,
    GROUP,
    TOPIC,
    CombinedQuorum,
    admin_of,
    read,
    state_of,
    unpacked,
    write,
)

pytestmark = [pytest.mark.lasts(seconds=30), pytest.mark.patience(seconds=180)]

ARCHIVES = sorted(DATA.glob("*.tar.xz"))


def test_there_are_archives_of_quorums_and_they_are_small() -> None:
    assert ARCHIVES
    for archive in ARCHIVES:
        assert archive.stat().st_size < 100_000


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.split(".")[0])
async def test_their_directories_start_one_by_one_and_a_rolling_restart_follows(
    archive: Path, tmp_path: Path
) -> None:
    """Only whole starts read every file that the earlier version left."""
    quorum, expected = await asyncio.to_thread(unpacked, archive, tmp_path)
    nodes, values = quorum.controllers, iter(range(10_000, 20_000))
    try:
        await nodes[1].start(wait=False)
        await nodes[2].start(wait=False)
        await quorum.leader()
        await nodes[3].start()
        await settled(quorum, expected["state"])
        rest = await asyncio.to_thread(
            read, quorum.bootstrap, TOPIC, len(expected["unread"]), GROUP
        )
        assert rest == set(expected["unread"]), "the group goes on where it was"
        said = {*expected["read"], *expected["unread"]}
        for one in (1, 2, 3):
            assert await nodes[one].stop() == 0
            await nodes[one].start()
            await settled(quorum, expected["state"])
            said |= set(await asyncio.to_thread(write, quorum.bootstrap, TOPIC, values))
        found = await asyncio.to_thread(read, quorum.bootstrap, TOPIC, len(said), f"new-{GROUP}")
        assert found == said
        await create(quorum.addresses[3], GONE, 3)
        for node in nodes.values():
            assert await node.stop() == 0
            assert " ERROR " not in node.log_file.read_text()
    finally:
        for node in nodes.values():
            node.close()


async def settled(quorum: CombinedQuorum, state: dict[str, object]) -> None:
    """Wait until every node says that all partitions are led by whom they were."""
    for address in quorum.addresses.values():
        await until_true(lambda at=address: _shows(at, state), f"{address} shows {state}")


def _shows(address: str, state: dict[str, object]) -> bool:
    found = state_of(address)
    return {name: found.get(name) for name in state} == state and len(
        admin_of(address).list_topics(timeout=10).brokers
    ) == 3
