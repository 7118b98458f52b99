"""Rounds of faults of one log directory while clients write: what a round does, and its check.

In each round a fault hits a directory below a running broker, or between a SIGKILL and the next
start; the broker is killed and started on what is left; the fault is mended and the broker started
again. Meanwhile an idempotent producer goes on writing to partitions in both directories: in the
end every record that was ever sent has its offset, and each acknowledged one was never missed.
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import batch
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import RawClient, fetch_fields, produce_fields
from tests.support.brokers.tiered_topics import create
from tests.support.brokers.traffic import Lane, Writing, read_back
from tests.support.damage.directory_faults import (
    FAULTS,
    DirectoryFault,
    Disk,
    valid_log_bytes,
    write_rules,
)

PARTITIONS = 4
PLAIN_TOPIC, TIERED_TOPIC = "plain", "tiered"
LANES: list[Lane] = [(t, p) for t in (PLAIN_TOPIC, TIERED_TOPIC) for p in range(PARTITIONS)]
OFFLINE = int(ErrorCode.KAFKA_STORAGE_ERROR)
RED_WITHIN_S = 10.0


def answers_of(broker: DirectoriesBroker, lane: Lane) -> dict[str, tuple[int, int]]:
    """Error code and offset of each kind of request about a partition; nothing is written if well.

    The produced batch is cut short, so that a partition that works refuses it with another code.
    """
    topic, partition = lane
    with RawClient(broker) as client:
        found: dict[str, tuple[int, int]] = {}
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        [known] = client.ask(ApiKey.METADATA, 5, asked).topics
        codes = [one.error_code for one in known.partitions if one.partition_index == partition]
        found["Metadata"] = (known.error_code or (codes or [-1])[0], -1)
        for name, time in (("earliest", -2), ("latest", -1)):
            wanted = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [{"partition_index": partition, "timestamp": time}],
                    }
                ],
            }
            [answer] = client.ask(ApiKey.LIST_OFFSETS, 2, wanted).topics[0].partitions
            found[name] = (answer.error_code, answer.offset)
        epochs = {"topic": topic, "partitions": [{"partition": partition, "leader_epoch": 0}]}
        ended = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, {"topics": [epochs]})
        [end] = ended.topics[0].partitions
        found["OffsetForLeaderEpoch"] = (end.error_code, end.end_offset)
        fetched = client.ask(ApiKey.FETCH, 4, fetch_fields(topic, partition=partition))
        [part] = fetched.responses[0].partitions
        found["Fetch"] = (part.error_code, part.high_watermark)
        sent = produce_fields(topic, bytes(batch(b"probe"))[:-1], index=partition)
        [done] = client.ask(ApiKey.PRODUCE, 7, sent).responses[0].partition_responses
        found["Produce"] = (done.error_code, done.base_offset)
        return found


@dataclass
class Rounds:
    """One broker with two log directories through many rounds.

    Attributes:
        broker: formatted and running after `prepare`.
        disks: its log directories.
        exposed: which of them faults may hit (not the metadata directory).
    """

    broker: DirectoriesBroker
    disks: list[Disk]
    exposed: list[int]
    seed: int
    has_mounts: bool

    def prepare(self) -> None:
        """Start, and make topics with partitions in both directories."""
        write_rules(self.broker, [])
        self.broker.start()
        create(self.broker, PLAIN_TOPIC, PARTITIONS)
        tiered = {"remote_storage_enable": "true", "local_retention_bytes": "1"}
        create(self.broker, TIERED_TOPIC, PARTITIONS, **tiered)
        self._next = dict.fromkeys(LANES, 0)
        until(lambda: all(self._exists(lane) for lane in LANES), "all partitions have a directory")
        self._home = {lane: self.broker.index_of(*lane) for lane in LANES}
        for topic in (PLAIN_TOPIC, TIERED_TOPIC):
            assert {self._home[lane] for lane in LANES if lane[0] == topic} == {0, 1}

    def _exists(self, lane: Lane) -> bool:
        return self.broker.partition_directory(*lane).is_dir()

    def round(self, number: int, kind: type[DirectoryFault] | None = None) -> str:
        """One round; what is lost, hidden, wrong, refused or silent fails it.

        Returns:
            What happened, for a person.
        """
        dice = Random(f"{self.seed}/{number}")
        possible = [one for one in FAULTS if self.has_mounts or not one.needs_mount]
        Random(self.seed).shuffle(possible)
        target = dice.choice(self.exposed)
        # Even and odd rounds have brokers of their own: both go through all kinds.
        turn = number // 2 + number % 2 * (len(possible) // 2)
        fault = (kind or possible[turn % len(possible)])(self.disks[target])
        is_running = fault.hits_running and dice.random() < 0.5
        when = "running" if is_running else "at start"
        what = f"{type(fault).__name__} of {fault.disk.path.name}, {when}"
        print(f"round {number}: {what}", flush=True)
        with Traffic(self.broker, self._next) as traffic:
            traffic.goes_on(LANES)
            if is_running:
                fault.hit()
                if fault.shows_running:
                    self._check_away(fault.disk, target, traffic)
            self.broker.kill()
            kept = self._log_bytes()
            if not is_running:
                fault.hit()
            for _ in range(dice.randint(1, 2)):
                self.broker.start()
                self._check_away(fault.disk, target, traffic)
                self.broker.kill()
            fault.heal()
            self._check_log_bytes(kept)
            self.broker.start()
            if dice.random() < 0.5:  # also the mended directory's first life may be short
                self.broker.kill()
                self.broker.start()
            traffic.goes_on(LANES)
            self._next = traffic.finish()
        self._check_everything(kept)
        if dice.random() < 0.5:
            assert self.broker.terminate() == 0, self.broker.log_tail()
            self.broker.start()
        return what

    # ------------------------------------------------------------------ checks

    def _check_away(self, disk: Disk, target: int, traffic: "Traffic") -> None:
        """The directory is away: its partitions say so, health says so, the others go on."""
        away = [lane for lane in LANES if self._home[lane] == target]
        here = [lane for lane in LANES if self._home[lane] != target]
        until(
            lambda: f"{disk.path} " in self.broker.http("/health")[1],
            f"/health names {disk.path}",
            deadline_s=RED_WITHIN_S,
        )
        for lane in away:
            answers = answers_of(self.broker, lane)
            code, _ = answers.pop("Metadata")
            assert code in (0, ErrorCode.LEADER_NOT_AVAILABLE, OFFLINE), (lane, "Metadata", code)
            assert {code for code, _ in answers.values()} == {OFFLINE}, (lane, answers)
        traffic.goes_on(here)
        for lane in here:
            if lane[0] == PLAIN_TOPIC:  # tiered: a part of the tier's own topic is away
                before = traffic.acknowledged(lane)
                low, high = read_back(self.broker, lane)
                assert low == 0, (lane, low)
                assert high >= before, (lane, high, before)

    def _check_everything(self, kept: dict[Path, int]) -> None:
        assert '"status": "green"' in self.broker.http("/health")[1], self.broker.http("/health")[1]
        for lane, end in self._next.items():
            assert self.broker.index_of(*lane) == self._home[lane], lane
            assert read_back(self.broker, lane) == (0, end), lane
        self._check_log_bytes(kept)

    def _log_bytes(self) -> dict[Path, int]:
        """Bytes of whole batches of the plain partitions, by directory, where it can be read."""
        return {
            disk.path: valid_log_bytes(
                self.broker.seen(disk.keep or disk.path), lambda name: name.startswith("plain-")
            )
            for disk in self.disks
        }

    def _check_log_bytes(self, before: dict[Path, int]) -> None:
        for path, size in self._log_bytes().items():
            assert size >= before[path], f"{path} had {before[path]} bytes of records, now {size}"


class Traffic:
    """A producer that never gives up, in a thread of its own."""

    def __init__(self, broker: DirectoriesBroker, first: dict[Lane, int]) -> None:
        self._writing = Writing(broker, first, timeout_s=300)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            for lane in LANES:
                self._writing.send(lane, 2)
            self._writing.poll(0.05)
            self._stop.wait(0.05)

    def acknowledged(self, lane: Lane) -> int:
        """Records of a lane that are acknowledged by now."""
        return self._writing.acknowledged[lane]

    def goes_on(self, lanes: list[Lane]) -> None:
        """Wait until a record of each lane, sent after this call, is acknowledged."""
        due = {lane: self._writing.sent[lane] + 2 for lane in lanes}
        until(
            lambda: (
                self._writing.failures
                or all(self.acknowledged(lane) >= offset for lane, offset in due.items())
            ),
            f"writing goes on to {lanes}",
        )
        self.check()

    def check(self) -> None:
        assert not self._writing.failures, self._writing.failures[:3]

    def finish(self) -> dict[Lane, int]:
        """Send no more, wait for what is under way; returns the next offset of each lane."""
        self._end()
        self._writing.flush()
        return dict(self._writing.sent)

    def _end(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._writing.__exit__()


def replay_line(seed: int, rounds: int) -> str:
    """How to run these rounds again."""
    return (
        f"replay: TIDEMARK_DIRECTORY_SEED={seed} TIDEMARK_FAULT_ROUNDS={rounds}"
        " pytest tests/integration/test_directory_faults.py"
    )
