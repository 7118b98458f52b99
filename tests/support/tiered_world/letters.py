"""KIP-405's offset constraints, checked in each step of a tiered world (K405-26).

Lx <= Ly <= Lz, Rx <= Ry <= Ly and Lx <= Ry + 1, where Lx, Ly and Lz are the local start, the last
stable offset and the local end, Rx and Ry the first and the last offset that is copied of this
broker's own lineage.
"""

from rlmm import lineage
from rsm_plugins.segment import SegmentState
from tests.support.tiered_world.broker import PARTITION, TieredBroker


def check_letters(one: TieredBroker, stable_before: int) -> None:
    """Check a broker's log against what its tier knows; nothing while that is not caught up.

    `stable_before`: how far this lineage was stable; a leader that begins may know of less.
    """
    partition, manager = one.partition, one.loop_tier.metadata
    if partition is None or not manager.is_ready(PARTITION):
        return
    log = partition.log
    first, stable, end = log.local_log_start_offset, log.last_stable_offset, log.log_end_offset
    coverage = lineage.Coverage(
        segment
        for segment in manager.list_segments(PARTITION)
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED
    )
    chain = log.epochs.entries()
    run = lineage.copied_through(coverage, chain, log.log_start_offset, end)
    remote_start = lineage.remote_start(coverage, chain, end)
    last = -1 if run is None else run.last_offset
    said = f"{one.name}: local {first} to {end}, stable {stable}, remote {remote_start} to {last}"
    assert first <= max(last + 1, log.log_start_offset), f"a hole: {said}"
    if partition.is_leader:
        assert first <= stable <= end, said
        assert last < max(stable, stable_before), said
        assert remote_start is None or run is None or remote_start <= last, said
