"""Offsets of a stream as Spark keeps them in a checkpoint: the JSON of Spark's Kafka source.

`{"topic":{"0":123}}`, ascending by topic and partition, so that equal offsets are equal text.
Spark itself turns the map into text. Must not know: Spark.
"""

import json
from collections.abc import Mapping

from kafka_protocol.types import TopicPartition
from pipeline.errors import OptionError
from pipeline.spark.options_values import partition_numbers

Offsets = dict[TopicPartition, int]


def to_map(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as Spark takes them."""
    found: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def from_map(said: Mapping[str, object]) -> Offsets:
    """Offsets that Spark read from a checkpoint.

    Raises:
        OptionError: this is not the checkpoint of a Kafka source.
    """
    try:
        return partition_numbers("checkpoint", json.dumps(said), 0)
    except OptionError as error:
        raise OptionError(
            f"the checkpoint holds no offsets of this source: {error}; give another"
            " checkpointLocation"
        ) from None
