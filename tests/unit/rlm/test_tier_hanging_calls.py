"""Calls of a plugin that outlive their deadline; settings that change while the tier runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlm.link.endpoint import LinkFailureError
from rlm.link.messages import Ack, Connect, Health, ReadAnswer, Reconfigure
from rlm.maintenance.assigned_partition import EXPIRE
from rlm.maintenance.ownership import HANGING_MAX
from rlm.service import VALIDATION_THREADS
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.tier.log_in_memory import PARTITION
from tests.support.tier.pair import Pair

CALL_MAX_MS = 1_000


class HangingDeletes:
    """The first deletions take longer than a call may; the tier's timers continue meanwhile."""

    def __init__(self, pair: Pair, left: int = 1) -> None:
        self.pair, self.left = pair, left
        self.running = self.running_max = 0
        self.inner = pair.storage.delete_log_segment_data
        self.ids: list[bytes] = []
        pair.storage.delete_log_segment_data = self  # type: ignore[method-assign,assignment]

    def __call__(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.ids.append(metadata.id.id)
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        if self.left:
            self.left -= 1
            self.pair.scheduler.advance(CALL_MAX_MS + 2_500)
            if self.left:  # the other threads of the pool continue as well
                self.pair.workers.turn()
        self.running -= 1
        self.inner(metadata)


def health(pair: Pair) -> Health:
    return [each for each in pair.told if isinstance(each, Health)][-1]


def metrics(pair: Pair) -> dict[str, float]:
    return {sample.name: sample.value for sample in pair.tier.telemetry.registry.samples()}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    pair = Pair(tmp_path, call_max_ms=CALL_MAX_MS, copy_max_ms=5_000)
    pair.log.fill(3)
    pair.assign()
    assert pair.log.copied == 8
    pair.log.delete_records(6)
    return pair


def expire(pair: Pair) -> None:
    pair.scheduler.advance(31_000)
    pair.pump()


def test_a_hanging_call_is_counted_and_its_pass_runs_again_on_a_new_thread(
    pair: Pair,
) -> None:
    hanging = HangingDeletes(pair)
    expire(pair)
    assert pair.workers.abandoned == ["rlm-expiration"]
    assert any(h.abandoned_calls == 1 for h in pair.told if isinstance(h, Health))
    assert any(
        h.unhealthy and "hangs" in h.unhealthy[0].reason for h in pair.told if isinstance(h, Health)
    )
    assert hanging.ids[0] == hanging.ids[1], "when the call returns, its pass does nothing more"
    assert pair.aborted == []
    left = [s.start_offset for s in pair.metadata.list_segments(PARTITION)]
    assert left == [6]
    pair.scheduler.advance(1_000)
    assert not health(pair).unhealthy
    assert health(pair).abandoned_calls == 0


@pytest.mark.parametrize("is_second", [False, True])
def test_hanging_calls_of_two_partitions_stop_all_until_one_returns(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_second: bool
) -> None:
    gate, delete = pair.tier.manager.passes.waits.gate(EXPIRE), pair.storage.delete_log_segment_data
    if is_second:
        gate.failed(PARTITION._replace(partition=99), RemoteStorageError("hangs, too"))
    reasons: list[str] = []

    def hangs(metadata: RemoteLogSegmentMetadata) -> None:
        if not reasons:
            while not pair.workers.abandoned:
                pair.scheduler.advance(100)
            reasons.append(gate.reason)
        delete(metadata)

    monkeypatch.setattr(pair.storage, "delete_log_segment_data", hangs)
    expire(pair)
    assert reasons == ["a call of the plugin hangs" if is_second else ""]
    pair.scheduler.advance(5_000)
    assert gate.is_open


def test_calls_of_one_partition_that_hang_do_not_take_half_of_the_pool(pair: Pair) -> None:
    hanging = HangingDeletes(pair, left=20)
    expire(pair)
    assert hanging.running_max == HANGING_MAX
    assert pair.workers.abandoned == ["rlm-expiration"] * len(pair.workers.abandoned) != []
    assert pair.aborted == []
    hanging.left = 0
    for _ in range(2):
        expire(pair)
    left = [s.start_offset for s in pair.metadata.list_segments(PARTITION)]
    assert left == [6]
    assert not health(pair).unhealthy


def test_half_a_pool_abandoned_ends_the_tier(pair: Pair) -> None:
    pair.workers.sizes["rlm-expiration"] = 2
    HangingDeletes(pair)
    expire(pair)
    assert pair.aborted == ["half of pool rlm-expiration hangs"]


def test_settings_change_while_it_runs(pair: Pair) -> None:
    changed = replace(
        pair.config,
        copier_threads=3,
        expiration_threads=4,
        reader_threads=5,
        copy_bytes_per_second=1,
    )
    assert pair.ask(Reconfigure(changed)).message == Ack()
    assert pair.workers.sizes == {
        "rlm-copier": 3,
        "rlm-expiration": 4,
        "rlm-validation": VALIDATION_THREADS,
        "remote-reader": 5,
    }
    copied = pair.log.copied
    pair.log.fill(3)
    expire(pair)
    assert pair.log.copied == copied + 3, "one segment passes, the next waits for its quota"
    pair.scheduler.advance(1_000)
    assert metrics(pair)["kafka_server_RemoteLogManager_remote_copy_throttle_time_max"] > 0
    assert metrics(pair)["kafka_server_RLMCopy_byte_rate"] > 0
    assert pair.ask(Reconfigure(pair.config)).message == Ack()
    for _ in range(12):
        pair.scheduler.advance(1_000)
        pair.pump()
    assert pair.log.copied == copied + 9


def test_a_hanging_read_ends_after_the_maximum_of_the_new_settings(pair: Pair) -> None:
    changed = replace(pair.config, call_max_ms=CALL_MAX_MS // 2)
    assert pair.ask(Reconfigure(changed)).message == Ack()
    pair.workers.held = {"post"}  # a thread has the load, and its result does not come
    answer = pair.read(6, wait_ms=CALL_MAX_MS - 100).message
    assert isinstance(answer, ReadAnswer)
    assert answer.message == "the remote store fails: a read runs longer than 500 ms"


def test_the_metadata_manager_is_connected_when_told(pair: Pair) -> None:
    assert pair.ask(Connect()).message == Ack()


def test_a_metadata_manager_that_cannot_be_connected_is_no_success(pair: Pair) -> None:
    pair.connect_error = OSError("connection refused")
    with pytest.raises(LinkFailureError, match="connection refused"):
        pair.ask(Connect())
    pair.connect_error = None
    assert pair.ask(Connect()).message == Ack()
