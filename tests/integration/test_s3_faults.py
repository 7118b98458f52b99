"""Everything that goes wrong between a tier and S3, while clients write and read throughout.

One broker meets each fault in turn and then all of them at once. Producing continues, a consumer of
old records gets every record right and meets retriable errors alone, and once the store is well
again there is in it what the metadata says, exactly.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import create, delete_topic
from tests.support.brokers.traffic import Lane, Traffic, produce_next, read_back
from tests.support.rounds import IS_PROVING
from tests.support.stores.audit import Auditor
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_faults import DELETES, READS, WRITES, Fault, Kind, Rule
from tests.support.stores.s3_proxy import S3Proxy
from tests.support.stores.s3_tier import S3Tier

SEED = int(os.environ.get("TIDEMARK_FAULT_SEED", "405"))
SETTINGS = {
    "log.segment.bytes": "1048576",
    "tidemark.remote.copy.max.ms": "10000",
    "tidemark.remote.chunk.cache.bytes": str(4 << 20),  # most reads reach the store
    "remote.log.manager.task.retry.backoff.ms": "100",
    "remote.log.manager.task.retry.backoff.max.ms": "1000",
}
PLUGIN = {
    "upload_part_size_bytes": str(5 << 20),
    "read_timeout_ms": "2000",
    "api_call_timeout_ms": "4000",
}
KEPT, SHORT, LARGE, GONE = ("kept", 0), ("short", 0), ("large", 0), ("gone", 0)
BURSTS: dict[Lane, int] = {KEPT: 5, SHORT: 15, LARGE: 20}
EVERYWHERE = (READS, WRITES, DELETES)
RULES = {
    Fault.ERROR_500: Rule(Fault.ERROR_500, probability=0.4),
    Fault.SLOW_DOWN: Rule(Fault.SLOW_DOWN, probability=0.4),
    Fault.ERROR_IN_200: Rule(Fault.ERROR_IN_200, probability=0.6),
    Fault.RESET_MID_BODY: Rule(Fault.RESET_MID_BODY, probability=0.4),
    Fault.CUT_BODY: Rule(Fault.CUT_BODY, probability=0.4),
    Fault.SHORT_BODY: Rule(Fault.SHORT_BODY, probability=0.4),
    Fault.FLIP_ANSWER: Rule(Fault.FLIP_ANSWER, probability=0.1),
    Fault.FLIP_REQUEST: Rule(Fault.FLIP_REQUEST, probability=0.4),
    Fault.LOST_ANSWER: Rule(Fault.LOST_ANSWER, probability=0.4),
    # An upload that begins after its copy is complete is for the bucket's lifecycle rule to end.
    Fault.LATE: Rule(Fault.LATE, kinds=(WRITES | DELETES) - {Kind.CREATE_UPLOAD}, probability=0.15),
    Fault.SLOW_FIRST_BYTE: Rule(Fault.SLOW_FIRST_BYTE, probability=0.4),
    Fault.HANG: Rule(Fault.HANG, probability=0.15),
}
"""How often each fault strikes; none so often that the library's attempts cannot do it."""


def has_struck(new: Counter[tuple[Fault, Kind]], rule: Rule, *, everywhere: bool) -> bool:
    """Whether a fault has struck; `everywhere`: reading, copying and deleting, where it suits."""
    if not everywhere:
        return any(fault is rule.fault for fault, _ in new)
    wanted = [group for group in EVERYWHERE if any(rule.matches(kind, "") for kind in group)]
    return all(any(new[rule.fault, kind] for kind in group) for group in wanted)


def a_phase(proxy: S3Proxy, traffic: Traffic, rules: Sequence[Rule], what: str) -> None:
    """Let faults strike until each was met, while records are written and all are read again."""
    began_s = time.monotonic()
    before = proxy.plan.injected_so_far()
    acknowledged = sum(traffic.writing.acknowledged.values())
    rounds = traffic.rounds[KEPT]
    proxy.inject(*rules)

    def is_over() -> bool:
        traffic.check()
        new = proxy.plan.injected_so_far() - before
        return (
            sum(new.values()) >= 10
            and traffic.rounds[KEPT] >= rounds + 2
            and sum(traffic.writing.acknowledged.values()) > acknowledged + 200
            and all(has_struck(new, rule, everywhere=len(rules) == 1) for rule in rules)
        )

    until(is_over, f"{what}: all strike, all is read and writing continues", deadline_s=240)
    proxy.calm()
    errors = sum((reading.errors for reading in traffic.readings), Counter())
    print(f"{what}: took_s={time.monotonic() - began_s:.1f} errors met so far: {dict(errors)}")


@pytest.mark.slow
@pytest.mark.rounds(seconds=80 if IS_PROVING else 20)
@pytest.mark.timeout(1200)
def test_store_faults_lose_or_alter_no_record_and_leave_no_orphan(
    make_broker: Callable[..., BrokerProcess], s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with S3Proxy(s3.url, seed=SEED, pause_s=0.3) as proxy:
        tier = S3Tier(s3, proxy.url)
        store = tier.settings(**PLUGIN)
        broker = make_broker(tiered=True, store=store, settings=SETTINGS).start()
        tiered = {"remote_storage_enable": "true", "local_retention_bytes": "1"}
        create(broker, KEPT[0], **tiered)
        create(broker, SHORT[0], retention_bytes=str(3 << 20), **tiered)
        large = {"segment_bytes": str(11 << 20), "retention_bytes": str(30 << 20)}
        create(broker, LARGE[0], **large, **tiered)
        create(broker, GONE[0], **tiered)
        produce_next(broker, GONE, 0, 1_000)
        with Traffic(broker, BURSTS, [KEPT, KEPT]) as traffic:
            until(lambda: len(tier.segments(*KEPT)) > 2, "there is something to read")
            for fault, rule in RULES.items() if IS_PROVING else ():  # mixed they all strike, too
                a_phase(proxy, traffic, [rule], fault.name)
            mixed = [replace(rule, probability=rule.probability / 6) for rule in RULES.values()]
            delete_topic(broker, GONE[0])
            a_phase(proxy, traffic, mixed, "all mixed")
        traffic.check()
        Auditor(broker, tier.listing).agreed()
        for lane in BURSTS:
            assert read_back(broker, lane)[1] == traffic.writing.sent[lane]
        assert read_back(broker, KEPT)[0] == 0
        assert tier.segments(*GONE) == []
        assert tier.segments(*SHORT)[0] > 0
        assert proxy.plan.requests[Kind.COMPLETE_UPLOAD] > 0
        restarts = broker.log_text().count("tier process is gone")
        checked = sum(reading.checked for reading in traffic.readings)
        print(f"replay: TIDEMARK_FAULT_SEED={SEED} checked={checked} restarts of tier={restarts}")
