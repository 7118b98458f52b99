"""Well-behaved clients with plain frames; they check content and latency of their answers."""

import os
import time
from typing import Any

from benchmarks.soak_parts.line import Line, Soaked
from benchmarks.soak_parts.records import (
    LANES,
    batch,
    fetch_fields,
    offsets_fields,
    produce_fields,
    records_in,
    topic_fields,
    value_of,
)
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey

TOPIC_TIERED = {"remote.storage.enable": "true", "local.retention.ms": "1000"}
PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors after which clients try again; the store of the soak fails on purpose."""
READ_S, READ_WAIT_MS = 45, 5_000
"""Longest time to read a topic's first record from the failing store, and the wait of each Fetch.
The usual half a second is over on a busy machine before the tier has had a CPU."""


async def fetched(line: Line, topic: str, partition: int, offset: int, **more: int) -> object:
    answer = await line.ask(ApiKey.FETCH, 11, **fetch_fields(topic, partition, offset, **more))
    return answer.responses[0].partitions[0]


async def small_producer(client: Soaked) -> None:
    """One small record at a time, timed; each is read back from where the broker says it is."""
    latencies = client.tally.latencies_ms
    with await client.line() as line:
        for _ in range(200):
            value = os.urandom(60)
            fields = produce_fields("small", client.number % 2, batch(value))
            began, runnable_ms = time.monotonic(), client.runnable_ms()
            answer = await line.ask(ApiKey.PRODUCE, 9, **fields)
            waited_ms = (time.monotonic() - began) * 1_000
            latencies["produce by the clock"].append(waited_ms)
            latencies["produce"].append(max(0, waited_ms - client.runnable_ms() + runnable_ms))
            told = answer.responses[0].partition_responses[0]
            if told.error_code:
                client.tally.complain(f"small produce: error {told.error_code}")
                continue
            part = await fetched(line, "small", client.number % 2, told.base_offset)
            found = dict(records_in(part.records)).get(told.base_offset)  # type: ignore[attr-defined]
            if found != value:
                client.tally.complain(f"small record {told.base_offset} is not what was written")
            client.tally.counts["small_producer records"] += 1
            await client.pause(0.4)


async def remote_reader(client: Soaked) -> None:
    """From the log start of a lane on, again and again: old offsets are in the store alone."""
    partition, offset = client.number % LANES, 0
    with await client.line() as line:
        for _ in range(120):
            await client.pause(0.5)
            part = await fetched(line, "lanes", partition, offset)
            code = part.error_code  # type: ignore[attr-defined]
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                offset = max(0, part.log_start_offset)  # type: ignore[attr-defined]
                asked = offsets_fields("lanes", partition, -2)
                told = await line.ask(ApiKey.LIST_OFFSETS, 7, **asked)
                offset = told.topics[0].partitions[0].offset
            elif code in PASSING:
                client.tally.counts["remote_reader retries"] += 1
            elif code:
                client.tally.complain(f"remote read of lane {partition} at {offset}: error {code}")
            else:
                offset = check_lane(client, partition, offset, part.records)  # type: ignore[attr-defined]


def check_lane(client: Soaked, partition: int, due: int, data: bytes | None) -> int:
    """Compare records with the expected ones; return the offset after the last one."""
    for offset, value in records_in(data):
        if offset < due:
            continue  # its batch begins before what was asked for
        if offset != due or value != value_of(partition, offset):
            client.tally.complain(f"lane {partition}: {value[:20]!r} at {offset}, {due} is due")
        client.tally.counts["remote_reader records"] += 1
        due = offset + 1
    return due


async def idle_consumer(client: Soaked) -> None:
    """A fetch session that waits for records of a quiet topic; some end it, some just go."""
    with await client.line() as line:
        usual = {"max_wait_ms": 5_000, "session_epoch": 0, "session_id": 0}
        answer = await line.ask(ApiKey.FETCH, 11, **fetch_fields("quiet", 0, 0, **usual))
        session = {"max_wait_ms": 5_000, "min_bytes": 1, "max_bytes": 1 << 20}
        session |= {"session_id": answer.session_id}
        for epoch in range(1, 7):
            answer = await line.ask(ApiKey.FETCH, 11, **session, session_epoch=epoch, topics=[])
            if answer.error_code:
                client.tally.counts["idle_consumer sessions lost"] += 1
                return
            client.tally.counts["idle_consumer fetches"] += 1
        if client.number % 2:
            await line.ask(ApiKey.FETCH, 11, **session, session_epoch=-1, topics=[])


async def read_first(client: Soaked, line: Line, topic: str) -> None:
    """The first record of a topic; like any client, ask again while there is no answer yet."""
    until = time.monotonic() + READ_S
    while True:
        part: Any = await fetched(line, topic, 0, 0, max_wait_ms=READ_WAIT_MS)
        if next(records_in(part.records), None) is not None:
            return
        code = part.error_code
        if (code and code not in PASSING) or time.monotonic() > until:
            client.tally.complain(f"topic {topic} is written and not read: error {code}")
            return
        client.tally.counts["topic_maker asked again"] += 1
        await client.pause(0.2)


async def topic_maker(client: Soaked) -> None:
    """Makes a topic, fills it, reads it, deletes it."""
    name = f"made-{client.number}-{client.rng.randrange(1 << 40)}"
    configs = {"internal.segment.bytes": "65536"}
    if client.number % 2:
        configs |= TOPIC_TIERED
    with await client.line() as line:
        told = await line.ask(ApiKey.CREATE_TOPICS, 5, **topic_fields(name, 3, configs))
        if told.topics[0].error_code:
            client.tally.complain(f"topic {name}: error {told.topics[0].error_code}")
            return
        written = 0
        for n in range(12):
            fields = produce_fields(name, n % 3, batch(os.urandom(20_000)))
            answer = await line.ask(ApiKey.PRODUCE, 9, **fields)
            code = answer.responses[0].partition_responses[0].error_code
            written += not code and n % 3 == 0
            if code and code not in PASSING:
                client.tally.complain(f"topic {name}: produce error {code}")
            await client.pause(0.2)
        if written:
            await read_first(client, line, name)
        gone = await line.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=30_000)
        if gone.responses[0].error_code:
            client.tally.complain(f"topic {name}: delete error {gone.responses[0].error_code}")
        client.tally.counts["topic_maker topics"] += 1


async def group_goer(client: Soaked) -> None:
    """Joins a group that is new, commits, and leaves, vanishes or deletes it."""
    group = f"group-{client.rng.randrange(1 << 40)}"
    join = {"group_id": group, "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000}
    join |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    with await client.line() as line:
        first = await line.ask(ApiKey.JOIN_GROUP, 5, **join, member_id="")
        if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            if first.error_code not in PASSING:
                client.tally.complain(f"{group}: join error {first.error_code}")
            return
        member = first.member_id
        joined = await line.ask(ApiKey.JOIN_GROUP, 5, **join, member_id=member)
        mine = {"group_id": group, "generation_id": joined.generation_id, "member_id": member}
        given = [{"member_id": member, "assignment": b"x"}]
        codes = [joined.error_code]
        synced = await line.ask(ApiKey.SYNC_GROUP, 3, **mine, assignments=given)
        codes.append(synced.error_code)
        for n in range(4):
            parts = [{"partition_index": 0, "committed_offset": n, "committed_metadata": "soak"}]
            commit = {"group_id": group, "generation_id_or_member_epoch": joined.generation_id}
            commit |= {"member_id": member, "topics": [{"name": "small", "partitions": parts}]}
            told = await line.ask(ApiKey.OFFSET_COMMIT, 7, **commit)
            codes.append(told.topics[0].partitions[0].error_code)
            codes.append((await line.ask(ApiKey.HEARTBEAT, 3, **mine)).error_code)
            await client.pause(1)
        if any(code and code not in PASSING for code in codes):
            client.tally.complain(f"{group}: errors {codes}")
        client.tally.counts["group_goer groups"] += 1
        end = client.rng.randrange(3)
        if end:
            await line.ask(ApiKey.LEAVE_GROUP, 3, group_id=group, members=[{"member_id": member}])
        if end == 2:
            await line.ask(ApiKey.DELETE_GROUPS, 1, groups_names=[group])


async def new_producer(client: Soaked) -> None:
    """A producer id of its own, and a few batches in order under it."""
    with await client.line() as line:
        got = await line.ask(
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout_ms=1_000
        )
        ids = {"producer_id": got.producer_id, "producer_epoch": got.producer_epoch}
        for sequence in range(3):
            records = batch(b"of a producer", **ids, base_sequence=sequence)
            answer = await line.ask(ApiKey.PRODUCE, 9, **produce_fields("small", 0, records))
            code = answer.responses[0].partition_responses[0].error_code
            if code and code not in PASSING:
                client.tally.complain(f"producer {got.producer_id}: error {code}")
        client.tally.counts["new_producer ids"] += 1
    await client.pause(1)
