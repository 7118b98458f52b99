"""Whatever is lost: no log start that nobody ordered, and no chain that was never so."""

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import EpochEntry
from rlm.link.messages import LogDescription
from rlm.maintenance.chain_restore import restored_chain
from rlm.maintenance.log_validation import ChainLost, Unhealthy, Validated, validate_log
from rlmm import lineage
from rlmm.api import Fence, PartitionHistory, SegmentHistory
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.support.tier.log_in_memory import PARTITION

END = 60


@dataclass(frozen=True)
class Truth:
    """A log as it was before anything was lost.

    Attributes:
        unclean: leader epoch of the last unclean election, which began at `diverges`.
        given_up: what the lineage before it had from there on.
    """

    chain: list[EpochEntry]
    log_start: int
    local_start: int
    borders: list[int]
    unclean: int
    diverges: int


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    starts = sorted(draw(st.sets(st.integers(1, END - 1), max_size=4)) | {0})
    epochs = sorted(draw(st.sets(st.integers(0, 12), min_size=len(starts), max_size=len(starts))))
    chain = [EpochEntry(epoch, start) for epoch, start in zip(epochs, starts, strict=True)]
    borders = sorted(draw(st.sets(st.integers(1, END), min_size=2, max_size=6)) | {0})
    local_start = draw(st.sampled_from(borders))
    log_start = draw(st.integers(0, local_start))
    at = draw(st.integers(0, len(chain) - 1))
    unclean = chain[at].epoch if at else -1
    diverges = chain[at].start_offset
    return Truth(chain, log_start, local_start, borders, unclean, diverges)


def segment(number: int, spans: list[lineage.Span]) -> SegmentHistory:
    metadata = RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(PARTITION, number.to_bytes(16, "big")),
        start_offset=spans[0].first,
        end_offset=spans[-1].last,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=100,
        leader_epochs=tuple(EpochEntry(span.epoch, span.first) for span in spans),
        state=SegmentState.COPY_SEGMENT_FINISHED,
    )
    fence = Fence(spans[-1].epoch, 1)
    return SegmentHistory(metadata, fence, fence, number)


def spans_of(chain: list[EpochEntry], first: int, end: int) -> list[lineage.Span]:
    return [
        span._replace(first=max(span.first, first))
        for span in lineage.chain_spans(chain, end)
        if span.last >= first
    ]


def copied(truth: Truth) -> list[SegmentHistory]:
    """What the log's own lineage has copied and not yet deleted."""
    found = []
    for first, end in pairwise(truth.borders):
        if end <= truth.local_start and end > truth.log_start:
            found.append(segment(first, spans_of(truth.chain, first, end)))
    return found


def given_up(truth: Truth) -> list[SegmentHistory]:
    """What a lineage that ended at the unclean election has copied beyond that place."""
    if truth.unclean < 0:
        return []
    old = [entry for entry in truth.chain if entry.epoch < truth.unclean]
    first = max(truth.diverges - 3, 0)
    return [segment(1_000, spans_of(old, first, END))]


def described(truth: Truth, chain: list[EpochEntry], **changes: object) -> LogDescription:
    fields: dict[str, object] = {
        "log_start_offset": truth.log_start,
        "log_start_known": True,
        "local_log_start_offset": truth.local_start,
        "last_stable_offset": END,
        "high_watermark": END,
        "chain": [(entry.epoch, entry.start_offset) for entry in chain],
        "closed_segments": [],
        "local_bytes": 0,
        "metadata_offset": 1,
        "log_end_offset": END,
    }
    return LogDescription(PARTITION.topic_id, 0, 20, **(fields | changes))  # type: ignore[arg-type]


def history(truth: Truth, log_starts: dict[int, int]) -> PartitionHistory:
    segments = sorted([*copied(truth), *given_up(truth)], key=lambda s: s.metadata.start_offset)
    return PartitionHistory(log_starts, {}, truth.unclean, 12, tuple(segments))


def clipped(chain: list[EpochEntry], first: int) -> list[EpochEntry]:
    return [EpochEntry(span.epoch, span.first) for span in spans_of(chain, first, END)]


@given(truths())
def test_without_a_loss_the_log_start_is_where_it_was(truth: Truth) -> None:
    log = described(truth, clipped(truth.chain, truth.log_start))
    assert validate_log(log, history(truth, {})) == Validated(truth.log_start)


@given(truths(), st.data())
def test_after_any_loss_the_validated_log_start_is_at_most_the_ordered_one(
    truth: Truth, data: st.DataObject
) -> None:
    """Also where lineages that were given up raised theirs higher, and whatever the file says."""
    epochs = [entry.epoch for entry in truth.chain]
    log_starts = {epochs[-1]: truth.log_start} if data.draw(st.booleans()) else {}
    ordered = truth.log_start
    if truth.unclean >= 0 and data.draw(st.booleans()):
        log_starts[max(e for e in epochs if e < truth.unclean)] = END
        ordered = max(ordered, truth.diverges)
    known = data.draw(st.booleans())
    how = data.draw(st.sampled_from(["sound", "missing", "old"]))
    chain = clipped(truth.chain, truth.log_start)
    local = clipped(truth.chain, truth.local_start)
    if how == "missing":
        chain = local
    elif how == "old" and len(chain) > 1:
        gone = data.draw(st.integers(0, len(chain) - 1))
        chain = [*chain[:gone], *chain[gone + 1 :]]
        chain = [*[e for e in chain if e.start_offset < truth.local_start], *local]
        chain = [e for at, e in enumerate(chain) if not at or chain[at - 1].epoch < e.epoch]
    changes = {} if known else {"log_start_known": False, "log_start_offset": truth.local_start}
    log = described(truth, chain, chain_problem="missing" if how == "missing" else "", **changes)
    past = history(truth, log_starts)
    verdict: Validated | ChainLost | Unhealthy | list[EpochEntry] = validate_log(log, past)
    if isinstance(verdict, ChainLost):
        indexes = [clipped_to(truth, source) for source in verdict.sources]
        verdict = restored_chain(log, past, verdict, indexes)
        if isinstance(verdict, list):
            first = max(truth.log_start, verdict[0].start_offset)
            assert spans_of(verdict, first, END) == spans_of(truth.chain, first, END)
            assert verdict[0].start_offset <= truth.log_start or not known
            log = described(truth, verdict, **changes)
            verdict = validate_log(log, past)
            assert not isinstance(verdict, ChainLost), verdict
    if isinstance(verdict, Validated):
        assert verdict.log_start <= ordered


def clipped_to(truth: Truth, source: RemoteLogSegmentMetadata) -> list[EpochEntry]:
    """The source's index: the lineage that its copier had, from its log start on."""
    is_given_up = source.id.id == (1_000).to_bytes(16, "big")
    chain = truth.chain
    if is_given_up:
        chain = [entry for entry in chain if entry.epoch < truth.unclean]
    return [EpochEntry(s.epoch, s.first) for s in spans_of(chain, 0, source.end_offset + 1)]
