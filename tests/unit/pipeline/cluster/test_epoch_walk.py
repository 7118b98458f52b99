"""The leader epoch of a record, asked from a leader that tells only where epochs end."""

from collections.abc import Iterable, Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import EpochEntry, TopicPartition
from pipeline.cluster import questions
from pipeline.cluster.asker import Asker
from pipeline.cluster.questions import EpochAsked, EpochEnd
from rlmm.lineage import epoch_at

Chain = list[EpochEntry]


def chain_of(steps: list[tuple[int, int]]) -> Chain:
    """Epochs and offsets so far above those before them; the first begins at offset 0."""
    epoch, start, chain = -1, 0, []
    for more, offsets in steps:
        epoch += more
        chain.append(EpochEntry(epoch, start))
        start += offsets
    return chain


CHAINS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=6).map(
    chain_of
)


@given(st.lists(CHAINS, min_size=1, max_size=3), st.data())
def test_the_epoch_is_that_of_the_chain(chains: list[Chain], data: st.DataObject) -> None:
    logs = {TopicPartition("t", number): chain for number, chain in enumerate(chains)}
    ends = {one: chain[-1].start_offset + 3 for one, chain in logs.items()}

    def epoch_ends(
        _asker: Asker, asked: Iterable[EpochAsked], _epochs: Mapping[TopicPartition, int]
    ) -> dict[EpochAsked, EpochEnd]:
        found = {}
        for one in asked:
            chain = logs[one.partition]
            starts = [entry.start_offset for entry in chain[1:]] + [ends[one.partition]]
            lower = [
                EpochEnd(entry.epoch, end)
                for entry, end in zip(chain, starts, strict=True)
                if entry.epoch <= one.epoch
            ]
            if lower:
                found[one] = lower[-1]
        return found

    offsets = {one: data.draw(st.integers(1, end + 1)) for one, end in ends.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "epoch_ends", epoch_ends)
        leaders = {one: chain[-1].epoch for one, chain in logs.items()}
        found = questions.epochs_before(cast("Asker", None), offsets, leaders)
    assert found == {
        one: epoch_at(logs[one], offset - 1)
        for one, offset in offsets.items()
        if offset <= ends[one]
    }
