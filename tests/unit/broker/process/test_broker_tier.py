"""What the metadata say of this broker's tier, and which removals are noted from the start on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.process.broker_tier import BrokerTier
from broker.remote.removed_topics import RemovedTopicsFile
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.model import BrokerImage, Provenance, RemoteStore
from metadata_topic.image.records import make
from metadata_topic.image.replay import replay_all
from runtime.disk import Disk
from runtime.executors import InlinePool

STORE = RemoteStore("rsm:Store", b"p" * 32)
EARLIER, AT_THE_START, LATER = b"e" * 16, b"s" * 16, b"l" * 16


@pytest.mark.parametrize(
    ("has_tier", "own", "is_told"),
    [
        (True, BrokerImage(1, 0, bytes(16)), True),
        (True, BrokerImage(1, 0, bytes(16), remote_store=STORE), False),
        (True, None, False),
        (False, BrokerImage(1, 0, bytes(16)), False),
    ],
    ids=["by a controller of Kafka", "by one of Tidemark", "not yet registered", "no tier"],
)
def test_a_tier_that_its_registration_lacks_is_told(
    has_tier: bool, own: BrokerImage | None, is_told: bool
) -> None:
    health: Any = SimpleNamespace(warnings={})
    image = MetadataImage(brokers={} if own is None else {1: own})
    node: Any = SimpleNamespace(node_id=1, image=image)
    tier: Any = SimpleNamespace(tier=object() if has_tier else None)
    BrokerTier.show_registration(tier, health, node)
    lines = [line for said in health.warnings.values() for line in said()]
    assert len(lines) == is_told
    assert all("do not say that this broker has a remote tier" in line for line in lines)


async def test_removals_before_at_and_after_the_start_are_all_noted(
    tmp_path: Path,
) -> None:
    def opened() -> RemovedTopicsFile:
        return RemovedTopicsFile(tmp_path, "c", Disk(), InlinePool())

    opened().forget(EARLIER)
    removed = opened()
    records = [make("NoOpRecord", removed_tiered_topics=[AT_THE_START])]
    image, _ = replay_all(EMPTY_IMAGE, records, Provenance(0, 1, 1))
    subscribers: list[Any] = []
    node: Any = SimpleNamespace(image=image, subscribe=subscribers.append)
    tier: Any = SimpleNamespace(tier=SimpleNamespace(removed_topics=removed), _commit=InlinePool())
    await BrokerTier.follow(tier, node)
    delta = MetadataDelta(image)
    delta.tiered_removals[LATER] = True
    for one in subscribers:
        one(image, delta)
    after = opened()
    after.read()
    assert after.keep() == [EARLIER, AT_THE_START, LATER]
