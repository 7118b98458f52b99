"""Taking over: the steps of an owner between the read-back of its barrier and its first pass.

Write order (docs/tiering.md §3, "leader change"): first the epoch chain is whole or restored. Then
the log start offset is settled and checkpointed, and from then on every record carries it. Only
then the copied run is reported to the broker. While the partition is unhealthy nothing is copied,
raised or deleted, and by the report nothing may expire. The validation is repeated until an
operator has ended the loss.
"""

from collections.abc import Sequence

from kafka_protocol.types import EpochEntry
from rlm.link.messages import Loss, LossFound
from rlm.maintenance.chain_restore import Index, chain_is_lost, restored_chain
from rlm.maintenance.copy_task import copied_through_report, loss_report, nothing_copied_report
from rlm.maintenance.effects import (
    Carry,
    MoveStart,
    NeedEpoch,
    PassResult,
    ReadEpochs,
    Recall,
    Report,
    Restore,
    Task,
    Validate,
)
from rlm.maintenance.log_facts import LogFacts
from rlm.maintenance.log_validation import ChainLost, Unhealthy, too_low, validate_log
from rlmm.api import PartitionHistory
from runtime.health_reasons import HealthReason


def take_over() -> Task[PassResult]:
    """Settle the log, or return a health reason."""
    facts: LogFacts = yield Validate(closed_segments=False)
    history: PartitionHistory = yield Recall()
    verdict = validate_log(facts.log, history)
    if isinstance(verdict, ChainLost):
        # Earlier reports may rest on the lost chain.
        yield Report(loss_report(facts, Loss.CHAIN))
        chain = yield from _chain_of_the_store(facts, history, verdict)
        if isinstance(chain, Unhealthy):
            return PassResult(unhealthy=chain.reason)
        taken: bool = yield Restore(chain)
        if not taken:
            why = "the one of the store contradicts a local batch"
            return PassResult(unhealthy=chain_is_lost(facts.log, verdict, why).reason)
        facts = yield Validate(closed_segments=False)
        verdict = validate_log(facts.log, history)
        if isinstance(verdict, ChainLost):
            why = "so is the one that was taken from the store"
            return PassResult(unhealthy=chain_is_lost(facts.log, verdict, why).reason)
    if isinstance(verdict, Unhealthy):
        yield Report(loss_report(facts, verdict.loss, verdict.restoration))
        if verdict.loss is Loss.LEADER_EPOCH:
            return (yield from _ask_for_epoch(facts.log.leader_epoch, verdict.used))
        return PassResult(unhealthy=verdict.reason)
    log = facts.log
    if verdict.log_start != log.log_start_offset or not log.log_start_known:
        reason = "carried" if log.log_start_known else "rebuilt"
        moved: bool = yield MoveStart(verdict.log_start, reason)
        if not moved:
            # Above the high watermark, which stands still until other replicas are in sync. After
            # an unclean election no replica joins before the log is validated, and its chain and
            # end are.
            yield Report(nothing_copied_report(facts))
            return PassResult(
                unhealthy=HealthReason.LOG_START_REFUSED.text(offset=verdict.log_start)
            )
        facts = yield Validate(closed_segments=False)
    yield Carry(verdict.log_start)
    yield Report(copied_through_report(facts))
    return PassResult()


def fenced_by_later_epoch(
    topic_id: bytes, partition: int, leader_epoch: int, used: int
) -> Task[PassResult]:
    """Under a leader epoch below one that was read, all readers refuse our barrier."""
    yield Report(LossFound(topic_id, partition, leader_epoch, Loss.LEADER_EPOCH))
    return (yield from _ask_for_epoch(leader_epoch, used))


def _ask_for_epoch(leader_epoch: int, used: int) -> Task[PassResult]:
    in_vain: str = yield NeedEpoch(used)
    return PassResult(unhealthy=too_low(leader_epoch, used, in_vain).reason)


def _chain_of_the_store(
    facts: LogFacts, history: PartitionHistory, lost: ChainLost
) -> Task[Sequence[EpochEntry] | Unhealthy]:
    indexes: list[Index] = []
    for source in lost.sources:
        index: Index = yield ReadEpochs(source)
        indexes.append(index)
    return restored_chain(facts.log, history, lost, indexes)
