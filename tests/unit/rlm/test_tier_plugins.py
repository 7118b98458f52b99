"""What a tier makes of its storage plugin and its metadata manager."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rlm.config import TierConfig
from rlm.link.messages import Image
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.service import REPORT_MS
from rlm.tier_process import configure_plugins
from rlmm.api import MetadataNotReadyError, RemoteLogMetadataManager, features_off
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.testing import FENCE, PARTITION
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rlmm.topic_based.removal_steps import DeleteObjects
from rlmm.topic_based.remover import Remover
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata
from rsm_plugins.settings import Setting
from rsm_plugins.testing import segment
from runtime.health_reasons import HealthText
from tests.support.sim.clock import ManualClock
from tests.support.tier.least_manager import LeastManager
from tests.support.tier.log_in_memory import SimulatedBroker
from tests.support.tier.pair import Pair


class Validating(InMemoryRemoteLogMetadataManager):
    """Validates its settings."""

    def check(self, configs: Mapping[str, str]) -> None:
        if "wrong" in configs:
            raise ValueError("wrong: may not be set")


class Removed(SimulatedBroker):
    """A broker whose metadata log says that the topic of the test was removed."""

    def image(self) -> Image:
        return Image([], 7, "c", [PARTITION.topic_id])


class Placeless(LocalFsRemoteStorageManager):
    """Of somebody else: does not name its place, and declares what it is told."""

    store_place: Any = None


class Silent(Placeless):
    """Declares nothing, either."""

    SETTINGS: ClassVar[Sequence[Setting]] = ()

    def configure(self, configs: Mapping[str, str]) -> None:
        """Connect to nothing."""


def plugins_of(
    manager: type,
    root: Path,
    calls: PluginCalls | None = None,
    storage: type = LocalFsRemoteStorageManager,
    **settings: str,
) -> Plugins:
    config = TierConfig(
        node_id=1,
        cluster_id="c",
        state_dir=str(root),
        cache_dir=str(root),
        storage_class=f"{storage.__module__}:{storage.__qualname__}",
        storage_settings={"dir": str(root)},
        metadata_class=f"{manager.__module__}:{manager.__qualname__}",
        metadata_settings=settings,
    )
    clock = ManualClock()
    return configure_plugins(config, Removed(), calls or PluginCalls(clock), clock)


def test_a_manager_with_the_abstract_methods_alone_works_without_a_remover(tmp_path: Path) -> None:
    plugins = plugins_of(LeastManager, tmp_path, wrong="1")
    assert plugins.remover is None
    metadata = plugins.metadata
    assert metadata.own(PARTITION, FENCE, 5, unclean_epoch=3).exception(0) is None
    one = replace(segment(), id=RemoteLogSegmentId(PARTITION, b"s" * 16))
    assert metadata.add(one, FENCE, 5).exception(0) is None
    assert list(metadata.aborting_segments(PARTITION, 0)) == [], "only finished ones count"
    metadata.carry(PARTITION, FENCE, 4)
    metadata.lead([4])
    assert metadata.history(PARTITION) is None
    assert metadata.catch_up(PARTITION).exception(0) is None
    metadata.release(PARTITION)
    assert isinstance(metadata.catch_up(PARTITION).exception(0), MetadataNotReadyError)
    assert (metadata.counts(), metadata.failure()) == ({}, None)


def test_each_feature_that_a_manager_leaves_out_is_named(tmp_path: Path) -> None:
    off = [
        each.partition(":")[0] for each in features_off(plugins_of(LeastManager, tmp_path).metadata)
    ]
    assert off == [
        "carry",
        "history",
        "catch_up",
        "on_lost_records",
        "counts",
        "unreadable",
        "failure",
        "remote data of deleted topics is not removed",
    ]


def test_a_store_that_is_told_from_others_by_its_class_alone_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for storage in (LocalFsRemoteStorageManager, Placeless):
        plugins_of(LeastManager, tmp_path, storage=storage)
    assert caplog.text == ""
    plugins_of(LeastManager, tmp_path, storage=Silent)
    assert "count as having one store" in caplog.text
    assert ":Silent" in caplog.text


@pytest.mark.parametrize(
    "manager", [InMemoryRemoteLogMetadataManager(), TopicBasedRemoteLogMetadataManager()]
)
def test_our_own_managers_leave_nothing_out(manager: RemoteLogMetadataManager) -> None:
    assert features_off(manager) == []


def test_health_names_what_a_manager_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path)
    pair.scheduler.advance(REPORT_MS)
    assert pair.told[-1].yellow == []
    without = RemoteLogMetadataManager.on_lost_records
    monkeypatch.setattr(InMemoryRemoteLogMetadataManager, "on_lost_records", without)
    pair.scheduler.advance(REPORT_MS)
    (reason,) = pair.told[-1].yellow
    assert (
        "leaves methods out: on_lost_records: records that its topic lost are not noticed at once"
        in reason
    )


def test_a_manager_that_cannot_read_its_topic_is_unhealthy(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.metadata.unreadable = lambda: (HealthText("partition 3"),)  # type: ignore[method-assign]
    pair.scheduler.advance(REPORT_MS)
    assert [one.reason for one in pair.told[-1].unhealthy] == ["partition 3"]


def test_settings_are_validated_before_the_manager_connects(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong: may not be set"):
        plugins_of(Validating, tmp_path, wrong="1")


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
    plugins = plugins_of(Validating, tmp_path)
    assert isinstance(plugins.remover, Remover)

    def refuses(metadata: RemoteLogSegmentMetadata) -> None:
        raise error

    monkeypatch.setattr(plugins.storage, "delete_log_segment_data", refuses)
    with pytest.raises(RemoteStorageError):
        plugins.remover.perform(DeleteObjects(segment()))
    assert plugins.deletions.failing() == 1
