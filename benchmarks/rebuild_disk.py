"""Parts `tiered` and `full`: a broker whose disk was lost is in sync again."""

import asyncio
import os
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.rebuild_cluster import (
    ALL,
    IDS,
    METADATA_TOPIC,
    Beside,
    Three,
    batch_of,
    p99_ms,
    refused,
    three,
)
from benchmarks.replication_nodes import metadata
from benchmarks.stall_probe import Client, produce_frame
from tests.support.quorum.controllers import Controller, run_to_end
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.tiering import TieringBroker

MB: Final = 1_000_000
NAN: Final = float("nan")
TOPIC, BESIDE = "rebuilt", "beside"
REST_S: Final = 10.0
LED_S: Final = 60.0
COPIED_S: Final = 1_800.0
REBUILT_S: Final = 1_800.0
_PARTITION_MB: Final = 110
_SEGMENT_BYTES_MIN: Final = 1 << 20
_RECORD: Final = 1_000
_RECORDS: Final = 100
_ELSEWHERE: Final = 19
"""Niceness of what stands for another machine: the brokers that serve have the processors first."""
_BEGUN = re.compile(r"log begins at the end of a remote segment: .* took_ms=(\d+)")
REPLICATED = "kafka_server_BrokerTopicMetrics_ReplicationBytesInPerSec_total"
STORE_READ = re.compile(
    r'^tidemark_remote_store_bytes_total\{[^}]*operation="fetch[^}]*\} (\S+)$', re.MULTILINE
)


async def rebuild(
    kind: type[Controller], directory: Path, megabytes: int, *, is_tiered: bool
) -> dict[str, float]:
    """Seconds and bytes until the lost broker is in sync with everything again."""
    async with three(kind, directory) as cluster:
        total = await filled(cluster, IDS, megabytes, is_tiered=is_tiered)
        local_share = log_bytes(cluster.others[0].logs, TOPIC) / total
        beside = Beside(BESIDE, [broker.address for broker in cluster.others])
        try:
            found, times = await _lose_the_disk(cluster, is_tiered=is_tiered)
        finally:
            waits = beside.stop()
        copied = found["bytes of logs on its disk then, MB"] * MB
        return {
            "local part of the data before, %": local_share * 100,
            **found,
            "bytes of logs on its disk then, % of all": copied / total * 100,
            "copied from brokers, % of all": found["copied from brokers, MB"] * MB / total * 100,
        } | {
            f"produce beside, {when}: p99 ms": p99_ms(waits, *time_of)
            for when, time_of in times.items()
        }


async def filled(cluster: Three, ids: Sequence[int], megabytes: int, *, is_tiered: bool) -> int:
    """Make both topics, that which is measured on these brokers; bytes of all its batches.

    Of a tiered one about 98 of 100 bytes are in the remote tier alone when this returns.
    """
    partitions = 3 * max(1, megabytes // (3 * _PARTITION_MB))
    each = megabytes * MB // partitions
    segment = max(_SEGMENT_BYTES_MIN, each // 100)
    local = each * 3 // 200
    tier = {"remote.storage.enable": "true", "local.retention.bytes": str(local)}
    config = {"segment.bytes": str(segment)} | (tier if is_tiered else {})
    firsts = [one % len(ids) for one in range(partitions)]
    turns = [[*ids[first:], *ids[:first]] for first in firsts]
    await cluster.nodes.create([TOPIC], turns, config)
    one, other = (broker.node_id for broker in cluster.others)
    await cluster.nodes.create([BESIDE], [[one, other], [other, one]])
    began = time.monotonic()
    total = await asyncio.to_thread(fill, cluster, partitions, each)
    say(f"{total / MB:.0f} MB written in {time.monotonic() - began:.0f} s")
    if is_tiered:
        bound = partitions * (local + 2 * segment)
        await until_asked(
            lambda: all(log_bytes(cluster.brokers[one].logs, TOPIC) <= bound for one in ids),
            "the rest is in the remote tier alone",
            deadline_s=COPIED_S,
        )
    return total


async def _lose_the_disk(
    cluster: Three, *, is_tiered: bool
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Return the figures, and the beginning and end of each part of the measurement."""
    rest_began = time.monotonic()
    await asyncio.sleep(REST_S)
    victim = cluster.victim
    victim.kill()
    killed = time.monotonic()
    victim.wipe()
    say(f"fenced after {await asyncio.to_thread(cluster.fenced_at) - killed:.1f} s")
    names = [TOPIC, METADATA_TOPIC] if is_tiered else [TOPIC]
    await victim.format()
    began = time.monotonic()
    await victim.start(wait=False)
    os.setpriority(os.PRIO_PROCESS, victim.pid, _ELSEWHERE)
    if isinstance(victim, TieringBroker):
        await give_up_the_lost_directory(victim)
    begun = time.monotonic()
    ended = await cluster.until_in_sync(names, REBUILT_S)
    page = victim.page("metrics") if isinstance(victim, TieringBroker) else ""
    builds = [int(one) for one in _BEGUN.findall(victim.log_tail(1_000_000))]
    return {
        "from the start to all in sync, s": ended - began,
        "of that, until all may begin, s": begun - began,
        "from then to all in sync, s": ended - begun,
        "copied from brokers, MB": metric(page, REPLICATED) / MB,
        "read from the store, kB": sum(map(float, STORE_READ.findall(page))) / 1_000
        if page
        else NAN,
        "bytes of logs on its disk then, MB": log_bytes(victim.logs, "") / MB,
        "logs begun by the remote tier": len(builds),
        "state built and swapped, median ms": statistics.median(builds or [0]),
        "state built and swapped, longest ms": max(builds, default=0),
    }, {
        "at rest": (rest_began, killed),
        "while it starts": (began, begun),
        "from then to in sync": (begun, ended),
    }


async def give_up_the_lost_directory(broker: TieringBroker) -> None:
    """Give the lost directory up as docs/replication.md says; the broker runs without it."""
    own = ["--config", str(broker.config_file)]
    nice = ["nice", "-n", str(_ELSEWHERE)]
    command = [*nice, sys.executable, "-m", "tidemark.cli", "directories"]
    missing: list[str] = []
    while not missing:
        _, said = await run_to_end([*command, "list", *own])
        missing = [one.split()[0] for one in said.splitlines() if one.split()[-1:] == ["missing"]]
    code, said = await run_to_end([*command, "forget", *missing, *own, "--yes"])
    assert code == 0, said


def fill(cluster: Three, partitions: int, each: int) -> int:
    """Write so many bytes to each partition, acks=all; bytes of all batches."""
    batch = batch_of([os.urandom(_RECORD) for _ in range(_RECORDS)])
    found = metadata(cluster.others[0].address, [TOPIC]).topics[0].partitions
    led = {one.partition_index: one.leader_id for one in found}
    assert len(led) == partitions
    clients = {leader: Client(cluster.nodes.addresses[leader]) for leader in set(led.values())}
    _until_led(clients, led, batch)
    frames = {
        leader: produce_frame({(TOPIC, one): batch for one in led if led[one] == leader}, ALL)
        for leader in set(led.values())
    }
    rounds = each // len(batch)
    for _ in range(rounds - 1):
        for leader, client in clients.items():
            client.send(frames[leader])
        for client in clients.values():
            wrong = refused(client.receive())
            assert not wrong, wrong
    for client in clients.values():
        client.close()
    return rounds * len(batch) * partitions


def _until_led(clients: Mapping[int, Client], led: Mapping[int, int], batch: bytes) -> None:
    """Write a batch to each partition: its leader may not know yet that it is."""
    for partition, leader in led.items():
        frame = produce_frame({(TOPIC, partition): batch}, ALL)
        deadline = time.monotonic() + LED_S
        while refused(clients[leader].exchange(frame)):
            assert time.monotonic() < deadline, f"{TOPIC}-{partition} is not led after {LED_S} s"
            time.sleep(0.02)


def log_bytes(logs: Path, topic: str) -> int:
    """Bytes of the log files of a topic's partitions, or of all but the cluster's metadata."""
    found = 0
    for path in logs.glob(f"{topic}*-*/*.log"):
        if not path.parent.name.startswith("__cluster_metadata"):
            found += size_of(path)
    return found


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # dropped meanwhile
        return 0


def metric(page: str, name: str) -> float:
    """Sum of a metric's series on a page; not a number where it has none."""
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
    return sum(map(float, found)) if found else float("nan")


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
