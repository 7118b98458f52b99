"""A group under fire: members of several libraries are killed and paused, the broker is killed.

What must hold, whatever happens:

1. every record that was acknowledged is processed at least once;
2. no commit goes back, neither as readers see it nor in the log of commits;
3. no partition has two owners in one generation, as the broker stored it and as members were told.
"""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from kafka_protocol.records.records import build_batch
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import Closed, produce
from tests.support.groups.clients import CLIENTS
from tests.support.groups.member import Event, Member, Partition
from tests.support.groups.offsets_log import Commit, Generation, history
from tests.support.groups.world import SETTINGS, World

TOPIC, GROUP = "fire", "under-fire"
PARTITIONS = 12
SESSION_MS = 6_000
COMMIT_EVERY_S = 0.3
LIBRARIES = ("confluent-kafka", "aiokafka", "franz-go")


@dataclass
class Seen:
    """What was acknowledged, and each offset that a reader of commits saw."""

    acknowledged: dict[Partition, int] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Fire:
    """One group, its writer and its watcher; `burn` does the damage."""

    def __init__(self, world: World, directory: Path, seed: int, members: int) -> None:
        self.world, self.directory = world, directory
        self.rng = random.Random(seed)
        self.seen = Seen()
        self.members: list[Member] = []
        self.former: list[Member] = []
        self._ends_at: dict[Member, float] = {}
        self._over = threading.Event()
        self._quiet = threading.Event()
        world.create(TOPIC, PARTITIONS)
        libraries = [name for name in LIBRARIES if CLIENTS[name].why_not() is None]
        for number in range(members):
            self._add(libraries[number % len(libraries)])
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._write, self._watch, self._commit)
        ]
        for thread in self._threads:
            thread.start()

    def _add(self, library: str) -> None:
        name = f"{library}-{len(self.members) + len(self.former)}"
        member = Member(CLIENTS[library], self.world.bootstrap, self.directory, name)
        member.subscribe(GROUP, TOPIC, session_ms=SESSION_MS, strategy="range")
        self.members.append(member)

    # -- beside the fire

    def _write(self) -> None:
        """A batch to each partition, again and again; what was not acknowledged is sent again."""
        while not self._quiet.wait(0.05):
            try:
                with self.world.connect() as client:
                    client.socket.settimeout(5)
                    while not self._quiet.wait(0.05):
                        for partition in range(PARTITIONS):
                            rows = [(int(time.time() * 1000), None, b"v" * 50, [])] * 3
                            answer = produce(client, TOPIC, build_batch(rows), index=partition)
                            if answer.error_code == 0:
                                end = answer.base_offset + len(rows)
                                self.seen.acknowledged[TOPIC, partition] = end
            except (OSError, Closed):
                continue

    def _watch(self) -> None:
        """Offsets as a reader sees them never go back."""
        while not self._over.wait(0.1):
            try:
                found = self.world.committed(GROUP)
            except (OSError, Closed):
                continue
            for one, (offset, _) in found.items():
                before = self.seen.committed.get(one, -1)
                if offset < before:
                    self.seen.wrong.append(f"{one}: committed {before}, then {offset}")
                self.seen.committed[one] = max(offset, before)

    def _commit(self) -> None:
        """Every member commits what it has processed."""
        while not self._over.wait(COMMIT_EVERY_S):
            for member in list(self.members):
                if not member.paused and member.process.poll() is None:
                    try:
                        member.do("commit")
                    except (AssertionError, ValueError, OSError):
                        continue  # it was killed meanwhile

    # -- the fire

    def burn(self, broker_kills: int, blows: int = 3) -> None:
        """Kill the broker so many times; before each time, strike at members."""
        self._settled("all members have partitions")
        for _ in range(max(broker_kills, 1)):
            for _ in range(blows):
                self._strike()
                self._progress()
            if broker_kills:
                self.world.crash()
                self._progress()
        for member in self.members:
            if member.paused:
                member.resume()

    def _strike(self) -> None:
        for member in self.members:
            code = member.process.poll()
            assert code is None, f"{member.name} ended by itself with {code}: {member.said()}"
        awake = [member for member in self.members if not member.paused]
        paused = [member for member in self.members if member.paused]
        kind = self.rng.choice(("kill", "pause", "resume", "leave"))
        if kind == "resume" and paused:
            self.rng.choice(paused).resume()
        elif kind == "pause" and len(awake) > 3:
            self.rng.choice(awake).pause()
        elif kind == "leave" and awake:
            self._replace(self.rng.choice(awake), politely=True)
        else:
            self._replace(self.rng.choice(self.members), politely=False)

    def _replace(self, member: Member, *, politely: bool) -> None:
        self.members.remove(member)
        if politely:
            member.do("close")
            try:
                until(
                    lambda: member.of("closed") or member.process.poll() is not None,
                    f"{member.name} has left",
                )
            except AssertionError as error:
                raise AssertionError(f"{error}\n{member.said()}") from None
        member.kill()
        self.former.append(member)
        self._add(member.client.name)

    def _progress(self) -> None:
        """Wait until commits move on in some partition: the group lives."""
        before = sum(self.seen.committed.values())
        until(
            lambda: sum(self.seen.committed.values()) > before or self.seen.wrong,
            f"commits continue; {self._said()}",
            deadline_s=90,
        )

    def _settled(self, what: str) -> None:
        def is_settled() -> bool:
            owned = [member.owned for member in self.members]
            return all(owned) and len(set().union(*owned)) == PARTITIONS

        until(is_settled, f"{what}; {self._said()}", deadline_s=90)

    def _said(self) -> str:
        return "\n".join(f"{one.name} paused={one.paused}: {one.said(3)}" for one in self.members)

    # -- after it

    def validate(self) -> dict[str, int]:
        """Wait for the end of all work, and say what came of it; fails where a promise broke."""
        self._quiet.set()
        self._threads[0].join(20)
        ends = dict(self.seen.acknowledged)
        assert len(ends) == PARTITIONS

        def is_done() -> bool:
            return all(self.seen.committed.get(one, 0) >= end for one, end in ends.items())

        try:
            until(is_done, "everything is committed", deadline_s=90)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._said()}") from None
        everybody = self.members + self.former
        processed = {record for member in everybody for record in member.records}
        missing = [
            (*one, offset)
            for one, end in ends.items()
            for offset in range(end)
            if (*one, offset) not in processed
        ]
        assert not missing, f"{len(missing)} records were never processed: {missing[:5]}"
        assert not self.seen.wrong, self.seen.wrong[:5]
        told = history(self.world, GROUP, int(SETTINGS["offsets.topic.num.partitions"]))
        commits = commits_in_order(told)
        generations = one_owner_each(told)
        events = [event for member in everybody for event in member.of("assigned")]
        told_as_stored(generations, events)
        refused = sum(1 for m in everybody for e in m.of("committed") if e["error"])
        return {
            "records": sum(ends.values()),
            "commits": commits,
            "refused commits": refused,
            "generations": len(generations),
            "assignments": len(events),
            "members": len(everybody),
        }

    def close(self) -> None:
        """Nothing is left."""
        self._over.set()
        self._quiet.set()
        for thread in self._threads:
            thread.join(20)
        for member in self.members + self.former:
            member.kill()


def commits_in_order(told: list[Commit | Generation]) -> int:
    """In the log of commits, no partition's offset goes back; returns how many there are."""
    last: dict[Partition, int] = {}
    commits = [entry for entry in told if isinstance(entry, Commit)]
    for entry in commits:
        before = last.get(entry.partition, -1)
        assert entry.offset >= before, (
            f"{entry.partition}: {before} was stored, then {entry.offset}"
        )
        last[entry.partition] = entry.offset
    return len(commits)


def one_owner_each(told: list[Commit | Generation]) -> dict[int, dict[str, frozenset[Partition]]]:
    """Generations by number: each partition has one owner, and none is stored in two ways."""
    found: dict[int, dict[str, frozenset[Partition]]] = {}
    for entry in told:
        if not isinstance(entry, Generation):
            continue
        owners: dict[Partition, str] = {}
        for member, partitions in entry.assigned.items():
            for one in partitions:
                assert one not in owners, f"generation {entry.number}: {one} has two owners"
                owners[one] = member
        before = found.get(entry.number)
        assert before in (None, entry.assigned), f"generation {entry.number} is stored twice"
        assert entry.number >= max(found, default=0), f"generation {entry.number} comes late"
        found[entry.number] = entry.assigned
    return found


def told_as_stored(
    generations: dict[int, dict[str, frozenset[Partition]]], events: list[Event]
) -> None:
    """What members were told is what was stored for them, in their generation if they know it."""
    for event in events:
        owned = frozenset((t, p) for t, p in event["owned"])
        member, number = event["member"], event.get("generation")
        fitting = [
            stored.get(member)
            for generation, stored in generations.items()
            if number in (None, generation)
        ]
        assert owned in fitting or not owned, f"{event} is nowhere stored: {fitting}"
