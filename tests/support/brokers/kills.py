"""Rounds of SIGKILL while a broker and its tier copy and delete: what a round does, and its check.

Each round writes to topics that are copied, expire by size, are cut by DeleteRecords or are
deleted, and kills tier, broker or both a few times: at random instants, or at the very moment when
a chosen request has reached the store or has been done by it. Then metadata and store must agree
and every record must read back.
"""

import os
import signal
import threading
from random import Random

from confluent_kafka import TopicPartition

from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import admin_of, create, delete_topic
from tests.support.brokers.traffic import Lane, Writing, read_back
from tests.support.stores.audit import Auditor, Listing
from tests.support.stores.s3_faults import Kind
from tests.support.stores.s3_proxy import S3Proxy

POINTS = (
    (Kind.PUT_OBJECT, ".log"),
    (Kind.PUT_OBJECT, ".indexes"),
    (Kind.PUT_OBJECT, ".manifest"),
    (Kind.CREATE_UPLOAD, ".log"),
    (Kind.UPLOAD_PART, ".log"),
    (Kind.COMPLETE_UPLOAD, ".log"),
    (Kind.DELETE_OBJECT, ""),
    (Kind.DELETE_OBJECTS, ""),
    (Kind.ABORT_UPLOAD, ""),
)
TIDES, LARGE, CUT = ("tides", 0), ("large", 0), ("cut", 0)
SIZES = {TIDES: 900, CUT: 500, LARGE: 2_700}
"""Records of a round: some segments of 1 MB, and one of 11 MB, which takes several parts."""
STRIKE_WAIT_S = 3.0


class KillRounds:
    """One broker that lives, and dies, through many rounds."""

    def __init__(
        self, broker: BrokerProcess, listing: Listing, proxy: S3Proxy | None, seed: int
    ) -> None:
        self._broker, self._proxy, self._seed = broker, proxy, seed
        self._audit = Auditor(broker, listing)
        self._next: dict[Lane, int] = dict.fromkeys(SIZES, 0)

    def prepare(self) -> None:
        """Make the topics."""
        tiered = {"remote_storage_enable": "true", "local_retention_bytes": "1"}
        create(self._broker, TIDES[0], retention_bytes=str(4 << 20), **tiered)
        create(self._broker, CUT[0], **tiered)
        large = {"segment_bytes": str(11 << 20), "retention_bytes": str(24 << 20)}
        create(self._broker, LARGE[0], **large, **tiered)

    def round(self, number: int) -> list[str]:
        """One round; anything that is lost, wrong, left behind or stuck fails it.

        Returns:
            What was killed where, in order.
        """
        dice = Random(f"{self._seed}/{number}")
        broker, own = self._broker, (f"round-{number}", 0)
        create(broker, own[0], remote_storage_enable="true", local_retention_bytes="1")
        if number:
            delete_topic(broker, f"round-{number - 1}")
            self._cut(dice)
        sizes = SIZES | {own: 700}
        with Writing(broker, {lane: self._next.get(lane, 0) for lane in sizes}) as writing:
            sender = threading.Thread(target=self._send, args=(writing, sizes))
            sender.start()
            try:
                kills = [self._strike(dice) for _ in range(dice.randint(1, 3))]
            finally:
                sender.join()
            writing.flush()
            self._next |= {lane: writing.sent[lane] for lane in SIZES}
        until(
            lambda: all(len(broker.local_segments(*lane)) == 1 for lane in sizes),
            "all but the active segments are remote, and local no more",
        )
        self._audit.agreed()
        for lane, end in (self._next | {own: 700}).items():
            assert read_back(broker, lane)[1] == end, lane
        return kills

    def _send(self, writing: Writing, sizes: dict[Lane, int]) -> None:
        left = dict(sizes)
        while any(left.values()):
            for lane in left:
                count = min(left[lane], max(20, sizes[lane] // 20))
                writing.send(lane, count)
                left[lane] -= count
            writing.poll(0.02)

    def _cut(self, dice: Random) -> None:
        partition = TopicPartition(*CUT, dice.randrange(self._next[CUT]))
        admin = admin_of(self._broker)
        admin.delete_records([partition])[partition].result(30)

    # ------------------------------------------------------------------ killing

    def _strike(self, dice: Random) -> str:
        victim = dice.choice(("tier", "broker", "both"))
        until(self._broker.tier_pid, "a tier runs")
        hit = threading.Event()
        proxy = self._proxy
        if proxy is None or dice.random() < 0.4:
            where, applied, kind, suffix = "any instant", False, None, ""
        else:
            applied = dice.random() < 0.5
            kind, suffix = dice.choice(POINTS)
            where = f"{kind.value}{suffix} {'done' if applied else 'coming'}"

            def look(seen: Kind, key: str) -> None:
                if seen is kind and key.endswith(suffix) and not hit.is_set():
                    self._signal(victim)
                    hit.set()

            setattr(proxy, "on_applied" if applied else "on_request", look)
        hit.wait(dice.uniform(0, 1.5) if kind is None else STRIKE_WAIT_S)
        if not hit.is_set():
            where = "any instant"
            hit.set()
            self._signal(victim)
        self._recover(victim)
        return f"{victim} at {where}"

    def _signal(self, victim: str) -> None:
        tier = self._broker.tier_pid()
        if victim != "tier":
            os.kill(self._broker.pid, signal.SIGKILL)
        if victim != "broker" and tier is not None:
            os.kill(tier, signal.SIGKILL)

    def _recover(self, victim: str) -> None:
        if victim == "tier":
            return  # the broker starts another
        process = self._broker.process
        assert process is not None
        process.wait()
        self._broker.start()


def replay_line(seed: int, rounds: int) -> str:
    """How to run these rounds again."""
    return (
        f"replay: TIDEMARK_KILL_SEED={seed} TIDEMARK_KILL_ROUNDS={rounds}"
        " pytest tests/integration/test_s3_kills.py"
    )
