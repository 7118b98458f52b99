"""A broker of one topic with one partition, whose answers a test chooses; real sockets and frames.

It keeps a log in memory and answers Metadata, Fetch and ListOffsets from it, as a leader does. What
goes wrong is a list of error codes for the next fetches.
"""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import TopicIdPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.framing import read_request_header


@dataclass
class ScriptedBroker:
    """The log and what goes wrong.

    Attributes:
        batches: of the log, ascending.
        aborted: (producer id, first offset, marker), as the leader's index has them.
        high_watermark, stable: None: the end of the batches.
        answer_batches: at most so many in one answer.
        cut_bytes: so much of the batch behind the last one is in the answer, too.
        errors: of the next fetches; None: no error.
        is_gone: the topic's id is known no more.
        fetched: offsets that were asked for.
        fetch_bytes: most that each of these fetches wanted; no more is given, beside one batch.
        connections: that were made.
    """

    partition: TopicIdPartition
    batches: list[bytes]
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    log_start: int = 0
    high_watermark: int | None = None
    stable: int | None = None
    answer_batches: int = 3
    cut_bytes: int = 0
    errors: list[int | None] = field(default_factory=list)
    is_gone: bool = False
    looks: int = 0
    fetched: list[int] = field(default_factory=list)
    fetch_bytes: list[int] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    @property
    def end(self) -> int:
        """The log end (exclusive)."""
        return max((spans(one)[1] for one in self.batches), default=self.log_start)

    def metadata(self, request: Any) -> Any:
        self.looks += 1
        answer = codec.response(ApiKey.METADATA).cls
        topic = answer.Topics
        assert [bytes(one.topic_id) for one in request.topics] == [self.partition.topic_id]
        if self.is_gone:
            found = topic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=self.partition.topic_id
            )
        else:
            part = topic.Partitions(
                error_code=0, partition_index=self.partition.partition, leader_id=1,
                replica_nodes=[1], isr_nodes=[1], offline_replicas=[],
            )  # fmt: skip
            found = topic(
                error_code=0, name=self.partition.topic, topic_id=self.partition.topic_id,
                partitions=[part],
            )  # fmt: skip
        broker = answer.Brokers(node_id=1, host="127.0.0.1", port=self.port)
        return answer(brokers=[broker], cluster_id="c", controller_id=1, topics=[found])

    def fetch(self, request: Any) -> Any:
        ((topic,),) = (request.topics,)
        (wanted,) = topic.partitions
        offset, is_committed = wanted.fetch_offset, request.isolation_level == 1
        self.fetched.append(offset)
        self.fetch_bytes.append(wanted.partition_max_bytes)
        end = self.end if self.high_watermark is None else self.high_watermark
        stable = end if self.stable is None else self.stable
        code = self.errors.pop(0) if self.errors else None
        if code is None and self.is_gone:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        if code is None and not self.log_start <= offset <= self.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        limit = stable if is_committed else end
        readable = [one for one in self.batches if offset < spans(one)[1] and spans(one)[0] < limit]
        sizes = list(accumulate(map(len, readable[: self.answer_batches])))
        count = max(1, sum(size <= wanted.partition_max_bytes for size in sizes))
        records = b"".join(readable[:count])
        behind = b"".join(readable[count:])
        last = max((spans(one)[1] for one in readable[:count]), default=-1)
        answer = codec.response(ApiKey.FETCH).cls
        part = answer.Responses.Partitions
        aborted = [
            part.AbortedTransactions(producer_id=producer, first_offset=first)
            for producer, first, marker in self.aborted
            if is_committed and first < last and marker >= offset
        ]
        found = part(
            partition_index=wanted.partition, error_code=code or 0, high_watermark=end,
            last_stable_offset=stable, aborted_transactions=aborted,
            records=b"" if code else records + behind[: self.cut_bytes],
        )  # fmt: skip
        return answer(
            error_code=0, responses=[answer.Responses(topic_id=topic.topic_id, partitions=[found])]
        )

    def list_offsets(self, request: Any) -> Any:
        answer = codec.response(ApiKey.LIST_OFFSETS).cls
        (topic,) = request.topics
        part = answer.Topics.Partitions(
            partition_index=topic.partitions[0].partition_index, error_code=0,
            offset=self.log_start,
        )  # fmt: skip
        return answer(topics=[answer.Topics(name=topic.name, partitions=[part])])

    def api_versions(self, _: Any) -> Any:
        answer = codec.response(ApiKey.API_VERSIONS).cls
        served = [
            answer.ApiKeys(api_key=key, min_version=0, max_version=codec.request(key).max_version)
            for key in (ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
        ]
        return answer(api_keys=served)

    def answer(self, frame: bytes) -> bytes:
        header = read_request_header(frame)
        key, version = header.api_key, header.api_version
        request, _ = codec.request(key).decode(frame, version, header.body_offset)
        ask = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
        }[ApiKey(key)]
        body = codec.response(key).encode(ask(request), version)
        tags = b"\0" * header_versions(key, version)[1]
        return header.correlation_id.to_bytes(4, "big") + tags + body


def spans(batch: bytes) -> tuple[int, int]:
    """Offsets `[first, end)` of a batch."""
    ((_, header),) = iter_batches(batch)
    return header.base_offset, header.next_offset


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.server.broker.connections += 1  # type: ignore[attr-defined]
        while size := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(size, "big"))
            answer = self.server.broker.answer(frame)  # type: ignore[attr-defined]
            self.wfile.write(len(answer).to_bytes(4, "big") + answer)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def serving(broker: ScriptedBroker) -> Iterator[str]:
    """Serve on a free port; gives `host:port`."""
    with _Server(("127.0.0.1", 0), _Connection) as server:
        server.broker = broker  # type: ignore[attr-defined]
        broker.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{broker.port}"
        finally:
            server.shutdown()
            thread.join()
