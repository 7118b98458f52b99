"""Tiers on one machine or on copies of it, that claim one store."""

from pathlib import Path

from rlm.link.messages import Ack, Connect, Health, Stop
from tests.support.tier.pair import ClaimStorage, Pair

NOW_MS = 10_000_000
INTERVAL_MS = 300_000


def start(root: Path, *, wall_ms: int = NOW_MS, down: bool = False, **more: object) -> Pair:
    """A tier with a partition of three closed segments, up for a second."""
    store = root.parent / "store"
    pair = Pair(root, store=store, kind=ClaimStorage, wall_ms=wall_ms, **more)  # type: ignore[arg-type]
    pair.storage.down = down
    pair.log.fill(3, records=20)
    assert pair.ask(Connect()).message == Ack()
    pair.assign()
    passes(pair, 1_000)
    return pair


def passes(pair: Pair, ms: int) -> None:
    for _ in range(ms // 250):
        pair.scheduler.advance(250)
        pair.pump()


def stop(pair: Pair) -> None:
    assert pair.ask(Stop(), 3_000).message == Ack()


def unhealthy(pair: Pair) -> list[str]:
    passes(pair, 1_000)
    health = next(each for each in reversed(pair.told) if isinstance(each, Health))
    return [each.reason for each in health.unhealthy]


def claims(pair: Pair) -> list[tuple[str, int | None]]:
    assert isinstance(pair.storage, ClaimStorage)
    return pair.storage.claims
