"""A tier and a broker on a fake link: when passes run, and what is told about them."""

from rlm.link.messages import (
    Ack,
    Health,
    PartitionSettings,
    Stop,
    Unassign,
)
from rlm.maintenance.copy_policy import PASS_SEGMENTS_MAX
from rsm_plugins.testing import Operation
from tests.support.tier.pair import NAMES, Pair, bytes_of


def test_a_pass_comes_again_at_the_interval_and_copies_what_is_new(pair: Pair) -> None:
    pair.log.fill(1)
    pair.scheduler.advance(29_000)
    pair.pump()
    assert pair.log.copied == 59
    pair.scheduler.advance(2_000)
    pair.pump()
    assert pair.log.copied == 62


def test_a_failed_pass_comes_again_after_a_backoff_that_success_resets(pair: Pair) -> None:
    pair.storage.down = True
    pair.log.fill(1)
    pair.scheduler.advance(31_000)
    pair.pump()
    failed = pair.calls(Operation.COPY)
    pair.scheduler.advance(700)
    pair.pump()
    assert pair.calls(Operation.COPY) == failed + 1
    pair.scheduler.advance(700)
    pair.pump()
    assert pair.calls(Operation.COPY) == failed + 1
    pair.storage.down = False
    pair.scheduler.advance(700)
    pair.pump()
    assert pair.log.copied == 62


def test_after_unassign_no_further_plugin_call_starts(pair: Pair) -> None:
    pair.log.fill(1)
    pair.workers.held.add("rlm-copier")
    pair.scheduler.advance(31_000)
    pair.link.pump()
    assert pair.ask(Unassign(*NAMES, 1)).message == Ack()
    before = len(pair.storage.calls)
    pair.workers.held.clear()
    pair.scheduler.advance(100_000)
    pair.pump()
    assert len(pair.storage.calls) == before


def test_a_stuck_copy_of_one_partition_does_not_hold_up_reads(pair: Pair) -> None:
    pair.log.fill(1)
    pair.workers.held |= {"rlm-copier", "rlm-expiration"}
    pair.scheduler.advance(31_000)
    assert bytes_of(pair.read(0))


def test_a_new_leader_epoch_takes_over_and_reports_again(pair: Pair) -> None:
    pair.log.new_epoch()
    pair.assign()
    assert pair.log.copied == 59
    assert bytes_of(pair.read(0))


def test_a_unhealthy_partition_is_told_and_metrics_have_kafkas_names(pair: Pair) -> None:
    pair.storage.down = True
    pair.log.fill(1)
    pair.scheduler.advance(31_000)
    pair.pump()
    pair.scheduler.advance(1_000)
    health = [each for each in pair.told if isinstance(each, Health)][-1]
    assert health.unhealthy
    assert (health.assigned, health.ready) == (1, 1)
    lines = pair.metrics_page().splitlines()
    prefix = "kafka_server_BrokerTopicMetrics_RemoteCopy"
    errors = [line for line in lines if line.startswith(f"{prefix}ErrorsPerSec_total")]
    assert float(errors[0].split()[1]) >= 1
    assert f'{prefix}LagSegments{{topic="orders",partition="0"}} 1' in lines


def test_stop_cancels_and_ends(pair: Pair) -> None:
    assert pair.ask(Stop()).message == Ack()
    assert pair.ended


def lag(pair: Pair) -> tuple[float, float]:
    """RemoteCopyLagSegments and RemoteCopyLagBytes of the partition."""
    found = {sample.name: sample.value for sample in pair.tier.telemetry.registry.samples()}
    prefix = "kafka_server_BrokerTopicMetrics_RemoteCopyLag"
    return found[f"{prefix}Segments"], found[f"{prefix}Bytes"]


def test_the_lag_counts_closed_uncopied_segments_while_the_store_is_away(pair: Pair) -> None:
    pair.storage.down = True
    for closed in (2, 5, 6):
        pair.log.fill(closed - (len(pair.log.segments) - 1))
        pair.scheduler.advance(31_000)
        pair.pump()
        waiting = pair.log.segments[-1 - closed : -1]
        assert lag(pair) == (closed, sum(len(segment.log) for segment in waiting))
    pair.storage.down = False
    pair.scheduler.advance(31_000)
    pair.pump()
    assert lag(pair) == (0, 0)
    pair.log.append(3)  # the active segment is no lag
    pair.scheduler.advance(31_000)
    pair.pump()
    assert lag(pair) == (0, 0)


def test_what_is_not_to_be_copied_is_no_lag(pair: Pair) -> None:
    pair.storage.down = True
    pair.log.fill(3)
    pair.scheduler.advance(31_000)
    pair.pump()
    assert lag(pair)[0] == 3
    pair.assign(settings=PartitionSettings(mode="read_only"))
    assert lag(pair) == (0, 0)


def test_requested_passes_continue_until_all_is_copied_after_an_outage(
    pair: Pair,
) -> None:
    pair.storage.down = True
    pair.log.fill(2 * PASS_SEGMENTS_MAX + 1)
    pair.scheduler.advance(31_000)
    pair.pump()
    pair.storage.down = False
    copied: list[int] = []
    pair.tier.manager.passes.run_now(lambda: copied.append(pair.log.copied))
    pair.pump()
    assert copied == [pair.log.end - 1]
