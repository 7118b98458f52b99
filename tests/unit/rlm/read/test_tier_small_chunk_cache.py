"""A cache that holds one chunk still serves everything: what was passed is not needed again."""

from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.records import build_batch
from rlm.link.messages import OffsetForTimestamp, ReadAnswer, Released, TimestampAnswer
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.testing import FaultyStorage, Operation
from tests.support.tier.log_in_memory import SimulatedBroker, values_of
from tests.support.tier.pair import NAMES, Pair, bytes_of, error_of, tokens_of

FETCHES_MAX = 20


class Patient(FaultyStorage):
    """Loses its patience with who fetches the same again and again."""

    since = 0

    def fetch_log_segment(self, *arguments: object) -> object:  # type: ignore[override]
        fetches = sum(1 for call in self.calls if call.operation is Operation.FETCH)
        if fetches - self.since > FETCHES_MAX:
            raise RetriableRemoteStorageError("no more")
        return super().fetch_log_segment(*arguments)  # type: ignore[arg-type]


def append_batch(log: SimulatedBroker) -> None:
    """Five records in one batch: the index names its last offset, and no other."""
    first = log.end
    records = [
        (1_000 + offset, b"k", b"%d" % offset * 50, []) for offset in range(first, first + 5)
    ]
    batch = build_batch(records, base_offset=first, leader_epoch=log.leader_epoch)
    log.segments[-1].add(bytes(batch))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path, chunk_bytes=4_000, chunk_cache_bytes=4_500, slice_bytes=4_000)
    made.storage.__class__ = Patient
    for _ in range(2):
        for _ in range(20):
            append_batch(made.log)
        made.log.roll()
    made.assign()
    made.log.expire_local()
    return made


def fresh_patience(pair: Pair) -> None:
    pair.storage.since = pair.calls(Operation.FETCH)  # type: ignore[attr-defined]


def test_every_place_can_be_read(pair: Pair) -> None:
    for offset in range(200):
        fresh_patience(pair)
        received = pair.read(offset, max_bytes=500)
        assert error_of(received) == ErrorCode.NONE, offset
        assert min(values_of(bytes_of(received)))[1] == offset - offset % 5
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()


def test_a_reader_that_continues_gets_everything(pair: Pair) -> None:
    offset = 0
    while offset < 200:
        fresh_patience(pair)
        received = pair.read(offset, max_bytes=1_000)
        assert error_of(received) == ErrorCode.NONE, offset
        assert min(values_of(bytes_of(received)))[1] == offset
        assert isinstance(received.message, ReadAnswer)
        offset = received.message.next_offset
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()


def test_every_time_is_found(pair: Pair) -> None:
    for offset in range(200):
        fresh_patience(pair)
        question = OffsetForTimestamp(
            *NAMES,
            pair.log.leader_epoch,
            timestamp_ms=1_000 + offset,
            log_start_offset=0,
            chain=[tuple(entry) for entry in pair.log.chain],
            wait_ms=500,
        )
        answer = pair.ask(question, 550).message
        assert isinstance(answer, TimestampAnswer)
        assert (answer.error, answer.offset) == (ErrorCode.NONE, offset)
