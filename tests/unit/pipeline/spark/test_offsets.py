"""Offsets in the checkpoint: the JSON of Spark's Kafka source."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import TopicPartition
from pipeline.errors import OptionError
from pipeline.spark.options_values import from_map, to_map

OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b.c", "z_1"]), st.integers(0, 200)),
    st.integers(0, (1 << 63) - 1),
)


def test_the_json_is_that_of_sparks_kafka_source() -> None:
    offsets = {
        TopicPartition("b", 10): 5,
        TopicPartition("b", 2): 7,
        TopicPartition("a", 0): 123,
    }
    assert json.dumps(to_map(offsets)) == '{"a": {"0": 123}, "b": {"2": 7, "10": 5}}'
    assert from_map(json.loads('{"b":{"10":5,"2":7},"a":{"0":123}}')) == offsets


@given(OFFSETS)
def test_offsets_come_back(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_map(offsets))
    assert from_map(json.loads(text)) == offsets
    assert json.dumps(to_map(dict(reversed(offsets.items())))) == text


@pytest.mark.parametrize("said", [{"a": 5}, {"a": {"x": 5}}, {"a": {"0": "5"}}, {"a": {"0": -1}}])
def test_the_checkpoint_of_another_source_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="give another checkpointLocation"):
        from_map(said)
