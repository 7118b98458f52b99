"""A copy counts when the store gives it back: stores that keep nothing, or half, silently."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path, PurePath
from typing import BinaryIO

import pytest

from rlm.maintenance.copy_task import READ_BACK_MAX_MS, READ_BACK_MS, copy_pass
from rlm.maintenance.effects import PassResult, Pause, ReadBack
from rlm.maintenance.store_gate import StoreGate
from rlm.plugin_calls import TaskCancelledError
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.layout.objects import object_names
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata, SegmentState
from rsm_plugins.testing import Operation
from tests.support.tier.log_in_memory import PARTITION, Killed
from tests.support.tier.scene import Scene

Lose = Callable[[Path], None]


class LyingPlugin(LocalFsRemoteStorageManager):
    """Says "copied" whatever its store has kept of it; afterwards `lose` works on the objects."""

    def __init__(self, root: Path, lose: Lose) -> None:
        super().__init__()
        self._root, self.lose = root, lose

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        custom = super().copy_log_segment_data(metadata, data)
        for path in self._root.rglob("*"):
            if path.is_file() and path.stem == PurePath(object_names(metadata).base).name:
                self.lose(path)
        return custom


def nothing(path: Path) -> None:
    path.unlink()


def no_log(path: Path) -> None:
    if path.suffix == ".log":
        path.unlink()


def no_indexes(path: Path) -> None:
    if path.suffix == ".indexes":
        path.unlink()


def no_manifest(path: Path) -> None:
    if path.suffix == ".manifest":
        path.unlink()


def half_a_log(path: Path) -> None:
    if path.suffix == ".log":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def half_the_indexes(path: Path) -> None:
    if path.suffix == ".indexes":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def half_a_manifest(path: Path) -> None:
    if path.suffix == ".manifest":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_bytes(path: Path) -> None:
    if path.suffix == ".log":
        path.write_bytes(b"\xff" * path.stat().st_size)


class Lying(Scene):
    def __init__(self, root: Path, lose: Lose) -> None:
        self.lose = lose
        super().__init__(root)

    def open_storage(self) -> RemoteStorageManager:
        plugin = LyingPlugin(self.root, lambda path: self.lose(path))  # noqa: PLW0108 - it changes
        plugin.configure({"dir": str(self.root)})
        return plugin


def keeps(path: Path) -> None:
    """Everything is there."""


@pytest.mark.parametrize(
    "lose",
    [
        nothing,
        no_log,
        no_indexes,
        no_manifest,
        half_a_log,
        half_the_indexes,
        half_a_manifest,
        other_bytes,
    ],
)
def test_a_copy_that_the_store_does_not_give_back_is_no_copy(tmp_path: Path, lose: Lose) -> None:
    scene = Lying(tmp_path, lose)
    scene.broker.fill(2)
    with pytest.raises(RemoteStorageError):
        scene.pass_all()
    scene.broker.expire_local()
    assert scene.broker.local_start == 0, "the local segments are the only ones"
    states = {segment.state for segment in scene.metadata.list_segments(PARTITION)}
    assert SegmentState.COPY_SEGMENT_FINISHED not in states
    scene.check_readable()
    scene.lose = keeps
    scene.settle()
    scene.broker.expire_local()
    assert scene.broker.copied == 5, "the store is whole again, and so are the copies"
    scene.check_readable()
    scene.check_no_leak()


def copying(scene: Scene, gate: StoreGate) -> PassResult:
    return scene.tier.run(
        copy_pass(
            PARTITION,
            scene.settings,
            broker_id=1,
            custom_metadata_bytes_max=128,
            throttle_ms=lambda size: 0,
            gate=gate,
        )
    )


@pytest.mark.parametrize("hidden", [1, 2, 5, 7])
def test_a_store_that_shows_objects_late_is_waited_for(tmp_path: Path, hidden: int) -> None:
    scene = Scene(tmp_path)
    scene.storage.hide_reads = hidden
    scene.broker.fill(1)
    scene.pass_all()
    assert scene.broker.copied == 2
    pauses = [each.wait_ms for each in scene.tier.effects if isinstance(each, Pause)]
    assert pauses == [min(100 * 2**n, 30_000) for n in range(hidden)]
    assert [segment.state for segment in scene.metadata.list_segments(PARTITION)] == [
        SegmentState.COPY_SEGMENT_FINISHED
    ]


@pytest.mark.parametrize(
    ("failed_probes", "at_least_ms"),
    [(0, READ_BACK_MS), (1, 2 * READ_BACK_MS), (3, 8 * READ_BACK_MS), (90, READ_BACK_MAX_MS)],
)
def test_what_never_shows_up_fails_each_probe_later_and_within_minutes(
    tmp_path: Path, failed_probes: int, at_least_ms: int
) -> None:
    scene, gate = Scene(tmp_path), StoreGate()
    gate.failed_probes = failed_probes
    scene.tier.world = replace(scene.tier.world, copy_max_ms=10 * READ_BACK_MAX_MS)
    scene.storage.hide_reads = 10**6
    scene.broker.fill(1)
    began_ms = scene.clock.monotonic_ms()
    with pytest.raises(
        RetriableRemoteStorageError, match=r"not found in the store for .*visible yet"
    ):
        copying(scene, gate)
    took_ms = scene.clock.monotonic_ms() - began_ms
    assert at_least_ms <= took_ms < 1.5 * at_least_ms
    assert not gate.is_open
    scene.storage.hide_reads = 0
    scene.settle()
    assert scene.broker.copied == 2
    scene.check_no_leak()


def test_a_probe_waits_no_longer_than_the_copy_maximum(tmp_path: Path) -> None:
    scene, gate = Scene(tmp_path), StoreGate()
    gate.failed_probes = 90
    scene.tier.world = replace(scene.tier.world, copy_max_ms=READ_BACK_MAX_MS // 2)
    scene.storage.hide_reads = 10**6
    scene.broker.fill(1)
    began_ms = scene.clock.monotonic_ms()
    with pytest.raises(RemoteStorageError, match="does not give back what was copied"):
        copying(scene, gate)
    assert scene.clock.monotonic_ms() - began_ms <= READ_BACK_MAX_MS // 2


def test_a_copy_that_the_store_lost_while_it_shows_others_closes_nothing(tmp_path: Path) -> None:
    scene, gate, another = Scene(tmp_path), StoreGate(), PARTITION._replace(partition=1)
    scene.storage.hide_reads = 10**6
    scene.broker.fill(1)
    seen = list[str]()

    def pause(wait: Callable[[int], object], wait_ms: int) -> None:
        seen.append(gate.reason)
        scene.clock.advance(wait_ms)
        with gate.trying(another):
            gate.worked()

    scene.tier.world = replace(scene.tier.world, pause=pause)
    with pytest.raises(RemoteStorageError, match="does not give back what was copied: not visible"):
        copying(scene, gate)
    assert seen == [""] * 7, "as long as a store may need to show what it has"


def test_an_ownership_that_ends_while_it_waits_calls_the_plugin_no_more(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.storage.hide_reads = 10**6
    scene.broker.fill(1)
    calls = list[int]()

    def pause(wait: Callable[[int], object], wait_ms: int) -> None:
        calls.append(len(scene.storage.calls))
        scene.tier.ownership.cancellation.cancel()

    scene.tier.world = replace(scene.tier.world, pause=pause)
    with pytest.raises(TaskCancelledError):
        copying(scene, StoreGate())
    assert calls == [len(scene.storage.calls)]


def test_a_store_that_fails_while_a_copy_is_read_back_fails_the_copy(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.storage.fail_next(Operation.FETCH_INDEX, RetriableRemoteStorageError("down"))
    scene.broker.fill(1)
    with pytest.raises(RetriableRemoteStorageError):
        scene.pass_all()
    scene.settle()
    assert scene.broker.copied == 2
    scene.check_no_leak()


@pytest.mark.parametrize("kill_before", [True, False])
def test_killed_while_it_reads_back_or_waits_nothing_is_lost(
    tmp_path: Path, kill_before: bool
) -> None:
    probe = Scene(tmp_path / "probe")
    probe.storage.hide_reads = 2
    probe.broker.fill(2)
    probe.pass_all()
    points = [
        number
        for number, effect in enumerate(probe.tier.effects, 1)
        if isinstance(effect, ReadBack | Pause)
    ]
    assert len(points) == 10
    for step in points:
        scene = Scene(tmp_path / f"{step}")
        scene.storage.hide_reads = 2
        scene.broker.fill(2)
        scene.kill_at, scene.kill_before = step, kill_before
        with pytest.raises(Killed):
            scene.pass_all()
        scene.broker.expire_local()
        scene.check_readable()
        scene.storage.hide_reads = 0
        scene.start_tier()
        scene.settle()
        scene.broker.expire_local()
        scene.check_readable()
        scene.check_no_leak()


class Bare(RemoteStorageManager):
    """A plugin of the interface alone, each part an object of its own; `loses` is never kept."""

    def __init__(self, loses: IndexType | None) -> None:
        self.loses, self.parts = loses, dict[tuple[bytes, IndexType | None], bytes]()

    def configure(self, configs: object) -> None:
        """Nothing is set."""

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        for kind, part in self._parts_of(data):
            if kind is not self.loses:
                self.parts[metadata.id.id, kind] = part
        return None

    def _parts_of(self, data: LogSegmentData) -> Iterator[tuple[IndexType | None, bytes]]:
        files: dict[IndexType | None, BinaryIO] = {
            None: data.log,
            IndexType.OFFSET: data.offset_index,
            IndexType.TIMESTAMP: data.time_index,
            IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
        }
        for kind, file in files.items():
            file.seek(0)
            yield kind, file.read()
        yield IndexType.LEADER_EPOCH, bytes(data.leader_epoch_index)

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        end = None if end_position is None else end_position + 1
        return BytesIO(self._part(metadata, None)[start_position:end])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        return BytesIO(self._part(metadata, index_type))

    def _part(self, metadata: RemoteLogSegmentMetadata, kind: IndexType | None) -> bytes:
        try:
            return self.parts[metadata.id.id, kind]
        except KeyError as error:
            raise RemoteResourceNotFoundError("gone") from error

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.parts = {key: part for key, part in self.parts.items() if key[0] != metadata.id.id}

    def close(self) -> None:
        """It holds nothing."""


@pytest.mark.parametrize(
    "loses", [None, *(kind for kind in IndexType if kind is not IndexType.TRANSACTION)]
)
def test_each_part_is_read_back_of_a_plugin_of_the_bare_interface(
    tmp_path: Path, loses: IndexType | None
) -> None:
    scene = Scene(tmp_path)
    scene.broker.fill(1)
    scene.storage.replace_inner(Bare(loses))
    with pytest.raises(RemoteStorageError, match="gone"):
        scene.pass_all()
    assert scene.broker.copied == -1


class Naming(Bare):
    """Finds its parts by what it said when it copied them."""

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        super().copy_log_segment_data(metadata, data)
        return b"where"

    def _part(self, metadata: RemoteLogSegmentMetadata, kind: IndexType | None) -> bytes:
        if metadata.custom_metadata != b"where":
            raise RemoteResourceNotFoundError("without its name nothing is found")
        return super()._part(metadata, kind)


def test_a_copy_is_read_back_by_the_name_that_the_plugin_gave_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.broker.fill(1)
    scene.storage.replace_inner(Naming(IndexType.TRANSACTION))
    scene.pass_all()
    assert scene.broker.copied == 2


class Closing(Bare):
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        custom = super().copy_log_segment_data(metadata, data)
        data.time_index.close()  # as boto3's `upload_fileobj` does
        return custom


def test_a_plugin_that_closes_what_it_was_given_is_told_the_rule(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.broker.fill(1)
    scene.storage.replace_inner(Closing(loses=IndexType.TRANSACTION))
    with pytest.raises(RemoteStorageError, match=r"has closed a file.* must leave the files"):
        scene.pass_all()
    assert scene.broker.copied == -1


def test_other_bytes_than_were_copied_are_named(tmp_path: Path) -> None:
    scene = Lying(tmp_path, other_bytes)
    scene.broker.fill(1)
    with pytest.raises(RemoteObjectDamagedError, match="the end of its log: 1 bytes of 1"):
        scene.pass_all()
