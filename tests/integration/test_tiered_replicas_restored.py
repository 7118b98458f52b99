"""A tiered partition of three replicas continues whose disks are all lost; the store is whole.

Only real processes show that the leader's followers find the log that it begins again with, take
the gap in it, and that the next leader continues with what they have built of it.
"""

import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.brokers.clients import produce, read_all
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.serving import admin, leaders, until_true
from tests.support.quorum.tiering import Cluster, Tiering, audited, tiers_combined

pytestmark = [pytest.mark.lasts(seconds=120), pytest.mark.patience(seconds=300)]

RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(4_000)]
MORE = [(b"more %d" % n, bytes(1_000)) for n in range(100)]
PATIENCE_S = 120
IN_ORDER = {"enable.idempotence": True}
"""Without it librdkafka sends a first batch again behind later ones."""


async def tidemark(*arguments: str) -> tuple[int, str]:
    return await run_to_end([sys.executable, "-m", "tidemark.cli", *arguments])


async def with_second_disks(cluster: Cluster) -> None:
    """The metadata of the tiers are on the first disk of each node, new topics on the second."""
    for node in cluster.nodes:
        await until_asked(
            lambda node=node: len([*node.logs.glob("__remote_log_metadata-*")]) == 4,  # type: ignore[misc]
            f"the metadata of the tiers are on {node.node_id}",
            deadline_s=PATIENCE_S,
        )
    for node in cluster.nodes:
        await node.stop()
        second_disk(node).mkdir()
        node.settings["log.dirs"] = f"{node.logs},{second_disk(node)}"
        await node.start()
    await cluster.until_all_serve()
    await cluster.until_green()


def second_disk(node: Tiering) -> Path:
    return node.directory / "second"


async def lose_second_disks(cluster: Cluster) -> None:
    """All at once; then each directory is given up, and nobody has a local record."""
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        shutil.rmtree(second_disk(node))
        node.settings["log.dirs"] = str(node.logs)
    await asyncio.gather(*(one.start() for one in cluster.nodes))
    await cluster.until_all_serve()
    for node in cluster.nodes:
        await node.stop()
        config = ("--config", str(node.config_file))
        _, listed = await tidemark("directories", "list", *config)
        (missing,) = re.findall(r"^ *(\S+) .* missing *$", listed, re.MULTILINE)
        given_up = ("--records-given-up", "unknown", "--yes")
        code, said = await tidemark("directories", "forget", missing, *given_up, *config)
        assert code == 0, said
        await node.start()
    await cluster.until_all_serve()


async def led_by(cluster: Cluster) -> Tiering:
    found: list[int] = []

    def is_led() -> bool:
        found[:] = leaders(cluster.nodes[0].address, "t").values()
        return found not in ([], [-1])

    await until_true(is_led, "it is led")
    return cluster.node(found[0])


async def until_in_sync(cluster: Cluster) -> None:
    tools: AdminClient = admin(cluster.servers)

    def are() -> bool:
        found = tools.list_topics("t", timeout=10).topics["t"].partitions[0]
        return set(found.isrs) == cluster.ids

    await until_asked(are, "all are in sync", deadline_s=PATIENCE_S)


async def test_three_lost_replicas_continue_from_the_store(tmp_path: Path) -> None:
    async with tiers_combined(tmp_path) as cluster:
        await with_second_disks(cluster)
        await cluster.create("t", replicas=3, min_insync_replicas="2")
        for node in cluster.nodes:
            assert (second_disk(node) / "t-0").is_dir(), "on the disk that is lost"
        await asyncio.to_thread(produce, cluster.nodes[0], "t", RECORDS, **IN_ORDER)
        await until_asked(
            lambda: cluster.copied_end("t") > 3_000, "it is copied", deadline_s=PATIENCE_S
        )
        await lose_second_disks(cluster)
        leader = await led_by(cluster)
        await until_asked(
            lambda: "restore-partition" in str(leader.health()),
            f"{leader.node_id} is unhealthy",
            deadline_s=PATIENCE_S,
        )
        order = ("remote", "restore-partition", "t", "0", "--bootstrap-server", cluster.servers)
        away = next(one for one in cluster.nodes if one is not leader)
        away.kill()

        def is_away() -> bool:
            return away.node_id not in admin(leader.address).list_topics(timeout=10).brokers

        await until_asked(is_away, "it is fenced", deadline_s=PATIENCE_S)
        code, said = await tidemark(*order, "--yes")
        assert (code, f"broker {away.node_id} is not there" in said) == (1, True), said
        await away.start()
        await cluster.until_all_serve()
        leader = await led_by(cluster)
        await until_asked(
            lambda: "restore-partition" in str(leader.health()),
            f"{leader.node_id} is unhealthy",
            deadline_s=PATIENCE_S,
        )
        # The last copy may have its objects and no FINISHED: what counts is what the leader knows.
        (code, said), end = await tidemark(*order, "--log-end", "9000", "--yes"), 9_000
        assert code == 0, said
        (copied,) = map(int, re.findall(r"what it has of the offsets below (\d+)", said))
        assert copied > 2_000, said
        await until_in_sync(cluster)
        await cluster.until_green()
        await asyncio.to_thread(produce, leader, "t", MORE, **IN_ORDER)
        expected = [(n, key, value) for n, (key, value) in enumerate(RECORDS[:copied])]
        expected += [(end + n, key, value) for n, (key, value) in enumerate(MORE)]
        assert await asyncio.to_thread(read_all, leader, "t") == expected
        for node in cluster.nodes:
            assert node.local_segments("t")[0] == copied, "built from the newest segment"
        leader.kill()
        other = next(one for one in cluster.nodes if one is not leader)
        await until_true(
            lambda: not {-1, leader.node_id} & set(leaders(other.address, "t").values() or [-1]),
            "another leads",
        )
        assert await asyncio.to_thread(read_all, other, "t") == expected
        await leader.start()
        await until_in_sync(cluster)
        await cluster.until_green()
        await audited(other, "--deep")
