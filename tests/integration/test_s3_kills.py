"""SIGKILL while copying to S3 and deleting there: nothing is lost, nothing is left behind."""

import os
from collections.abc import Callable
from random import Random

import pytest

from tests.support.brokers.kills import KillRounds, replay_line
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tiered_topics import QUICK
from tests.support.rounds import rounds
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_faults import DELETES, WRITES, Fault, Rule
from tests.support.stores.s3_proxy import S3Proxy
from tests.support.stores.s3_tier import S3Tier

ROUNDS = rounds("TIDEMARK_KILL_ROUNDS", quick=2, full=10)
SEED = int(os.environ.get("TIDEMARK_KILL_SEED", "0")) or Random().randrange(1, 1_000_000)


@pytest.mark.slow
@pytest.mark.rounds(seconds=10 * ROUNDS)
@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_killed_at_random_while_copying_and_deleting_on_s3(
    make_broker: Callable[..., BrokerProcess], s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    print(replay_line(SEED, ROUNDS))
    with S3Proxy(s3.url, seed=SEED, pause_s=0.2) as proxy:
        # What was under way when its sender was killed reaches the store a moment later.
        proxy.inject(Rule(Fault.SLOW_FIRST_BYTE, kinds=WRITES | DELETES, probability=0.2))
        tier = S3Tier(s3, proxy.url)
        store = tier.settings(
            upload_part_size_bytes=str(5 << 20), read_timeout_ms="2000", api_call_timeout_ms="4000"
        )
        settings = QUICK | {
            "remote.log.manager.task.interval.ms": "200",
            "tidemark.remote.copy.max.ms": "3000",
        }
        broker = make_broker(tiered=True, store=store, settings=settings).start()
        rounds = KillRounds(broker, tier.listing, proxy, SEED)
        rounds.prepare()
        for number in range(ROUNDS):
            print(f"round {number}: killed {', '.join(rounds.round(number))}", flush=True)
