"""What a tier makes of the optional powers of its metadata manager."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from rlm.config import TierConfig
from rlm.link.messages import Image
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.tier_process import configure_plugins
from rlmm.api import Checkable, DeletedTopics, KnowsAborts, TopicBacked
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.powers import power_of
from rlmm.red import RedText
from rlmm.testing import FENCE, PARTITION
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rlmm.topic_based.removal_steps import DeleteObjects
from rlmm.topic_based.remover import Remover
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from rsm_plugins.testing import segment
from tests.support.sim.clock import ManualClock
from tests.support.tier.log_in_memory import SimulatedBroker


class WithoutDeletedTopics(InMemoryRemoteLogMetadataManager):
    """Cleans up after deleted topics by itself."""

    led_partitions = None  # type: ignore[assignment]


class OnATopic(InMemoryRemoteLogMetadataManager):
    """Has every power, and shows what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.led: Iterable[int] | None = ()

    def check(self, configs: Mapping[str, str]) -> None:
        if "wrong" in configs:
            raise ValueError("wrong: may not be set")

    def lead(self, metadata_partitions: Iterable[int] | None) -> None:
        self.led = metadata_partitions

    def counts(self) -> dict[str, int]:
        return {"read": 7}

    def unreadable(self) -> Sequence[RedText]:
        return (RedText("partition 3"),)

    def failure(self) -> str | None:
        return "its thread has ended"


class ForeignOnATopic(OnATopic):
    """The same without our additions to KIP-405's interface: the loader wraps it."""

    carry = history = catch_up = on_lost_records = None  # type: ignore[assignment]


class Removed(SimulatedBroker):
    """A broker whose metadata log says that the topic of the test was removed."""

    def image(self) -> Image:
        return Image([], 7, "c", [PARTITION.topic_id])


def plugins_of(
    manager: type, root: Path, calls: PluginCalls | None = None, **settings: str
) -> Plugins:
    config = TierConfig(
        node_id=1,
        cluster_id="c",
        state_dir=str(root),
        cache_dir=str(root),
        storage_class="rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        storage_settings={"dir": str(root)},
        metadata_class=f"{manager.__module__}:{manager.__qualname__}",
        metadata_settings=settings,
    )
    clock = ManualClock()
    return configure_plugins(config, Removed(), calls or PluginCalls(clock), clock)


def test_a_manager_without_powers_gets_no_remover(tmp_path: Path) -> None:
    plugins = plugins_of(WithoutDeletedTopics, tmp_path, wrong="1")
    assert plugins.remover is None
    assert (plugins.lead, plugins.counts(), plugins.failure()) == (None, {}, None)


def test_a_manager_with_deleted_topics_gets_a_remover_and_nothing_else(tmp_path: Path) -> None:
    plugins = plugins_of(InMemoryRemoteLogMetadataManager, tmp_path)
    assert plugins.remover is not None
    assert (plugins.lead, plugins.counts(), plugins.failure()) == (None, {}, None)
    assert plugins.red() == ()


@pytest.mark.parametrize("kind", [OnATopic, ForeignOnATopic])
def test_a_manager_on_a_topic_is_led_counted_and_watched(kind: type, tmp_path: Path) -> None:
    plugins = plugins_of(kind, tmp_path)
    assert plugins.remover is not None
    assert plugins.lead is not None
    plugins.lead([4])
    assert getattr(plugins.metadata, "led", None) == [4]
    assert plugins.counts() == {"read": 7}
    assert plugins.failure() == "its thread has ended"
    assert plugins.red() == ("partition 3",)


@pytest.mark.parametrize("kind", [OnATopic, ForeignOnATopic])
def test_settings_are_judged_before_the_manager_connects(kind: type, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong: may not be set"):
        plugins_of(kind, tmp_path, wrong="1")


class HandsOn(ForeignOnATopic):
    """A wrapper: it has the interface, and hands on all else."""

    def __init__(self) -> None:
        super().__init__()
        inner = ForeignOnATopic()
        self.__dict__["inner"] = inner

    lead = counts = unreadable = failure = check = property()  # type: ignore[assignment]

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["inner"], name)


def test_a_power_that_a_wrapper_hands_on_counts(tmp_path: Path) -> None:
    plugins = plugins_of(HandsOn, tmp_path)
    assert plugins.counts() == {"read": 7}
    with pytest.raises(ValueError, match="wrong: may not be set"):
        plugins_of(HandsOn, tmp_path, wrong="1")


class WithAnAttribute(OnATopic):
    """As before `failure` was a method."""

    failure = None  # type: ignore[assignment]


class WithoutDeletion(OnATopic):
    deletion = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "missing"), [(WithAnAttribute, "failure"), (WithoutDeletion, "deletion")]
)
def test_a_part_of_a_power_is_refused_by_name(kind: type, missing: str, tmp_path: Path) -> None:
    wanted = rf"manager\.class\.name=.*{kind.__name__}: .* no method is called {missing}$"
    with pytest.raises(ValueError, match=wanted):
        plugins_of(kind, tmp_path)


def test_our_manager_on_the_topic_has_every_power() -> None:
    manager = TopicBasedRemoteLogMetadataManager()
    for power in (Checkable, DeletedTopics, KnowsAborts, TopicBacked):
        assert power_of(manager, power) is manager


def test_the_remover_writes_nothing_while_the_store_must_not_be_written_to(tmp_path: Path) -> None:
    calls = PluginCalls(ManualClock())
    plugins = plugins_of(InMemoryRemoteLogMetadataManager, tmp_path, calls)
    metadata = plugins.metadata
    assert isinstance(metadata, InMemoryRemoteLogMetadataManager)
    assert plugins.remover is not None
    metadata.own(PARTITION, FENCE)
    written = len(metadata.log)
    calls.let_write(False)
    assert plugins.remover.look() == []
    plugins.remover.remove(PARTITION, lambda: None)
    assert len(metadata.log) == written
    calls.let_write(True)
    assert plugins.remover.look() == [PARTITION]
    plugins.remover.remove(PARTITION, lambda: None)
    assert len(metadata.log) == written + 1, "PARTITION_MARKED"


@pytest.mark.parametrize(
    "error", [RemoteStorageError("405 from the store"), PermissionError(13, "of its library")]
)
def test_what_cannot_be_deleted_of_a_removed_topic_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    plugins = plugins_of(OnATopic, tmp_path)
    assert isinstance(plugins.remover, Remover)

    def refuses(metadata: RemoteLogSegmentMetadata) -> None:
        raise error

    monkeypatch.setattr(plugins.storage, "delete_log_segment_data", refuses)
    with pytest.raises(RemoteStorageError):
        plugins.remover.perform(DeleteObjects(segment()))
    assert plugins.deletions.failing() == 1
