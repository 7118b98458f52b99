"""A tier with the remover of removed topics."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from kafka_protocol.types import TopicIdPartition
from rlm.config import TierConfig
from rlm.link.messages import ImageChanged
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.workers import EXPIRATION_POOL
from rlmm.api import PartitionDeleteState
from rlmm.topic_based.removal_policy import ClusterImage
from rlmm.topic_based.removal_ports import RemoverConfig, StoreGate
from rlmm.topic_based.remover import Remover
from tests.support.tier.pair import Pair

CALL_MAX_MS, GRACE_MS = 1_000, 500


def wake(pair: Pair) -> None:
    pair.broker.tell(ImageChanged([]))
    pair.pump()


class Removals:
    """A metadata log in which both topics of the test are removed."""

    def __init__(self, *topic_ids: bytes) -> None:
        self.removed = frozenset(topic_ids)

    def image(self) -> ClusterImage | None:
        return ClusterImage(frozenset(), self.removed, "c")

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        pass


def state_of(pair: Pair, partition: TopicIdPartition) -> PartitionDeleteState | None:
    known = pair.metadata.deletion(partition)
    assert known is not None
    return known.state


class WithRemover(Pair):
    """A tier with a remover; its calls are watched as those of all tasks."""

    def __init__(self, root: Path, removals: Removals, **more: Any) -> None:
        self.removals = removals
        super().__init__(root, call_max_ms=CALL_MAX_MS, copy_max_ms=5_000, **more)

    def _plugins(self, config: TierConfig, calls: object) -> Plugins:
        assert isinstance(calls, PluginCalls)
        self.remover = Remover(
            self.metadata,
            self.storage,
            self.removals,
            RemoverConfig(
                cluster_id="c", node_id=1, grace_ms=GRACE_MS, copy_max_ms=config.copy_max_ms
            ),
            self.clock,
            StoreGate(
                watch_call=lambda hangs: calls.call(
                    EXPIRATION_POOL, "delete", config.call_max_ms, on_overdue=hangs, writes=True
                ),
                may_write=lambda: calls.may_write,
            ),
        )
        return super()._plugins(config, calls)
