"""Encodes the answer to Produce by hand: the codec would take a quarter of a small request's time.

Without errors a partition's fields have a fixed size, so a partition is one `pack`. Answers with
texts or tags are encoded by the codec.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import Any, Final

from broker.handlers import produce_versions as since
from broker.topics.cluster import BrokerAddress
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.primitives import encode_uvarint

PartitionAnswer = tuple[int, int, int, int, int, Sequence[tuple[int, str]], str | None]
"""The answer of one partition.

Index, error code, base offset, log append time ms, log start offset, record errors (index in the
batch, text), error message.
"""

_pack_3 = Struct(">ihqq").pack  # versions 3, 4
_pack_5 = Struct(">ihqqq").pack  # 5 to 7
_pack_8 = Struct(">ihqqqih").pack  # 8: no record errors (count 0), message null (-1)
_pack_9 = Struct(">ihqqqBBB").pack  # 9 on: no record errors (1), message null (0), no tags (0)
_pack_length = Struct(">h").pack
_pack_count = Struct(">i").pack

_response = response(ApiKey.PRODUCE)
_Response = _response.cls
_Topic = _Response.Responses
_Partition = _Topic.PartitionResponses
_RecordError = _Partition.RecordErrors

_NO_THROTTLE: Final = b"\0\0\0\0"

Leaders = Mapping[tuple[Any, int], tuple[int, int]]
"""Leader and leader epoch by topic (as in the answer) and partition (KIP-951)."""


def encode_answer(
    version: int,
    topics: Sequence[tuple[Any, Sequence[PartitionAnswer]]],
    leaders: Leaders | None = None,
    endpoints: Iterable[BrokerAddress] = (),
) -> list[object]:
    """Encode the body of a Produce response.

    Args:
        version: 3 to 13.
        topics: Topic name, or from version 13 the 16 bytes of its id, with its partitions' answers.
        leaders: Current leaders of partitions with NOT_LEADER_OR_FOLLOWER; from version 10 on.
        endpoints: Endpoints of these leaders.
    """
    if leaders:
        return _encode_compiled(version, topics, leaders, endpoints)
    flexible = version >= since.FLEXIBLE
    parts = [encode_uvarint(len(topics) + 1) if flexible else _pack_count(len(topics))]
    for topic, answers in topics:
        if not flexible:
            name = topic.encode()
            parts += (_pack_length(len(name)), name, _pack_count(len(answers)))
        elif version >= since.TOPIC_IDS:
            parts += (topic, encode_uvarint(len(answers) + 1))
        else:
            name = topic.encode()
            parts += (encode_uvarint(len(name) + 1), name, encode_uvarint(len(answers) + 1))
        for index, code, base_offset, append_time, log_start, record_errors, text in answers:
            if text is not None or record_errors:
                return _encode_compiled(version, topics)
            if flexible:
                parts.append(_pack_9(index, code, base_offset, append_time, log_start, 1, 0, 0))
            elif version >= since.RECORD_ERRORS:
                parts.append(_pack_8(index, code, base_offset, append_time, log_start, 0, -1))
            elif version >= since.LOG_START:
                parts.append(_pack_5(index, code, base_offset, append_time, log_start))
            else:
                parts.append(_pack_3(index, code, base_offset, append_time))
        if flexible:
            parts.append(b"\0")
    parts.append(b"\0\0\0\0\0" if flexible else _NO_THROTTLE)
    return [b"".join(parts)]


def _encode_compiled(
    version: int,
    topics: Sequence[tuple[Any, Sequence[PartitionAnswer]]],
    leaders: Leaders = MappingProxyType({}),
    endpoints: Iterable[BrokerAddress] = (),
) -> list[object]:
    with_ids = version >= since.TOPIC_IDS
    value = _Response(
        responses=[
            _Topic(
                partition_responses=[
                    _partition(answer, leaders.get((topic, answer[0]))) for answer in answers
                ],
                **({"topic_id": topic} if with_ids else {"name": topic}),
            )
            for topic, answers in topics
        ],
        node_endpoints=[
            _Response.NodeEndpoints(node_id=one.id, host=one.host, port=one.port, rack=one.rack)
            for one in endpoints
        ],
    )
    return list(_response.encode_parts(value, version))


def _partition(answer: PartitionAnswer, leader: tuple[int, int] | None) -> Any:
    index, code, base_offset, append_time, log_start, record_errors, text = answer
    leader_id, leader_epoch = leader or (-1, -1)
    return _Partition(
        current_leader=_Partition.CurrentLeader(leader_id=leader_id, leader_epoch=leader_epoch),
        index=index,
        error_code=code,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=log_start,
        record_errors=[
            _RecordError(batch_index=i, batch_index_error_message=message)
            for i, message in record_errors
        ],
        error_message=text,
    )
