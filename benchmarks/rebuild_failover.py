"""Part `failover`: the leader of many tiered partitions is lost, and they are copied again."""

import asyncio
import os
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.rebuild_cluster import ALL, VICTIM, Three, batch_of, refused, three
from benchmarks.rebuild_disk import metric, say
from benchmarks.replication_nodes import metadata
from benchmarks.stall_probe import Client, produce_frame
from tests.support.quorum.controllers import Controller
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.tiering import TieringBroker

PARTITIONS_A_TOPIC: Final = 100
PATIENCE_S: Final = 300.0
_POLL_S: Final = 0.5
_AGAIN_S: Final = 0.02
_APART_MS: Final = 120_000
CONFIG: Final = {"remote.storage.enable": "true", "segment.ms": "60000"}
"""Records are two minutes apart by their time: each closes the segment of the one before."""
Places = set[tuple[str, int]]


async def failover(kind: type[Controller], directory: Path, partitions: int) -> dict[str, float]:
    """Kill the leader while it has a closed segment of each partition that is not copied yet.

    A partition counts as done with the copy of a segment that the next leader has written.
    """
    each = min(partitions, PARTITIONS_A_TOPIC)
    names = [f"led-{number}" for number in range(partitions // each)]
    places = {(name, one) for name in names for one in range(each)}
    async with three(kind, directory) as cluster:
        one, other = (broker.node_id for broker in cluster.others)
        turns = [[VICTIM, *((one, other) if at % 2 else (other, one))] for at in range(each)]
        await cluster.nodes.create(names, turns, CONFIG)
        records = Records(cluster, names)
        suffix = ".manifest" if isinstance(cluster.victim, TieringBroker) else ".log"
        copies = Copies(cluster.store, suffix)
        for _ in range(2):
            await asyncio.to_thread(records.append, places)
        began = time.monotonic()
        await copies.until_all_have(0, len(places))
        say(f"{len(places)} partitions copied once, {time.monotonic() - began:.1f} s after")
        await asyncio.to_thread(records.append, places)
        cluster.victim.kill()
        killed, killed_at = time.monotonic(), time.time()
        left = len(places) - copies.count(1)
        spent = cpu_s(cluster)
        validated = Validated(cluster)
        fenced = await asyncio.to_thread(cluster.fenced_at)
        fenced_at = time.time()
        await asyncio.to_thread(records.append, places)
        led = time.monotonic()
        await asyncio.to_thread(records.append, places)
        await copies.until_all_have(3, len(places))
        spent = cpu_s(cluster) - spent
        again = sorted(at - fenced_at for at in copies.of(3))
        others = sorted(at - fenced_at for at in copies.of(1) if at > killed_at)
        await asyncio.to_thread(validated.stop)
        return {
            f"{len(places)} partitions: not copied when killed": left,
            "killed to fenced, s": fenced - killed,
            "fenced to a record taken by all, s": led - fenced,
            "fenced to the copy of what was left: median s": median(others),
            "fenced to the copy of what was left: last s": max(others, default=float("nan")),
            "fenced to the copy of what is new: median s": median(again),
            "fenced to the copy of what is new: last s": again[-1],
            "fenced to all validated, s": validated.at - fenced,
            "most that waited for validation": validated.most,
            "CPU s of the two and their tiers until all was copied": spent,
        }


def cpu_s(cluster: Three) -> float:
    """CPU seconds so far of the brokers that are left, and of their tiers."""
    found = 0.0
    for broker in cluster.others:
        process = psutil.Process(broker.pid)
        for one in (process, *process.children(recursive=True)):
            times = one.cpu_times()
            found += times.user + times.system
    return found


def median(found: Sequence[float]) -> float:
    return statistics.median(found) if found else float("nan")


class Records:
    """Appends one record after the other to many partitions."""

    def __init__(self, cluster: Three, names: Sequence[str]) -> None:
        self._cluster, self._names = cluster, names
        self._time_ms = int(time.time() * 1_000) - 10 * _APART_MS

    def append(self, places: Places) -> None:
        """Return when all have taken it; asks again who leads until then."""
        self._time_ms += _APART_MS
        batch = batch_of([b"x" * 100], self._time_ms)
        left, deadline = set(places), time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < deadline, f"{len(left)} partitions take no record"
            for address, led in self._led(left).items():
                with Client(address) as client:
                    frame = produce_frame(dict.fromkeys(led, batch), ALL)
                    left -= led - refused(client.exchange(frame)).keys()
            if left:
                time.sleep(_AGAIN_S)

    def _led(self, places: Places) -> dict[str, Places]:
        """Partitions by the address of their leader, without those of a broker that is gone."""
        found: dict[str, Places] = {}
        for topic in metadata(self._cluster.others[0].address, self._names).topics:
            for one in topic.partitions:
                broker: Any = self._cluster.brokers.get(one.leader_id)
                place = (topic.name, one.partition_index)
                if broker is not None and broker.is_running and place in places:
                    found.setdefault(broker.address, set()).add(place)
        return found


class Copies:
    """Segments in the store."""

    def __init__(self, store: Path, suffix: str) -> None:
        self._store, self._suffix = store, suffix

    def of(self, base: int) -> list[float]:
        """For each partition with a segment from that base offset on: when the first was there."""
        found: dict[str, float] = {}
        for place, _, names in os.walk(self._store):
            for name in names:
                if name.endswith(self._suffix) and int(name.split("-")[0]) >= base:
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        at = Path(place, name).stat().st_mtime
                        found[place] = min(at, found.get(place, at))
        return list(found.values())

    async def until_all_have(self, base: int, partitions: int) -> None:
        def have() -> bool:
            time.sleep(_POLL_S)  # to look is work, too
            return self.count(base) == partitions

        await until_asked(have, f"all have copied {base}", deadline_s=PATIENCE_S)

    def count(self, base: int) -> int:
        """Partitions of which it is there."""
        return len(self.of(base))


class Validated:
    """Looks on a thread how many partitions wait for the validation of their tier.

    Attributes:
        at: When none did for the first time after the last that did (monotonic).
        most: How many did at once.
    """

    def __init__(self, cluster: Three) -> None:
        self._brokers = [one for one in cluster.others if isinstance(one, TieringBroker)]
        self.at, self.most = float("nan"), 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End when none waits any more."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        before = 0.0
        while self._brokers and not (self._is_over.wait(_POLL_S) and not before):
            pages = [one.page("metrics") for one in self._brokers]
            waiting = sum(metric(one, "tidemark_remote_unvalidated_partitions") for one in pages)
            if before and not waiting:
                self.at = time.monotonic()
            before, self.most = waiting, max(self.most, waiting)
