"""Consumer groups and producer ids."""

import struct
import uuid
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.files import files_below
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import RawClient, build, header

FIELDS: dict[str, Any] = {
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"m"}],
}


def group_id() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def join(client: RawClient, group: str, **fields: object) -> Any:
    """One JoinGroup; version 3 needs no second turn for the member's id."""
    version = 5 if "group_instance_id" in fields else 3
    asked = FIELDS | {"group_id": group} | fields

    def answer() -> Any:
        got = client.ask(ApiKey.JOIN_GROUP, version, asked)
        if got.error_code not in COMING:
            return got
        client.ask(ApiKey.FIND_COORDINATOR, 1, {"key": group, "key_type": 0})  # makes its topic
        return None

    return until(answer, "the coordinator is there", deadline_s=20)


COMING = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 16}


def leave(client: RawClient, group: str, *members: str) -> None:
    for member in members:
        client.ask(ApiKey.LEAVE_GROUP, 0, {"group_id": group, "member_id": member})


def sync(client: RawClient, group: str, joined: Any, assignment: bytes = b"a") -> Any:
    """The leader hands itself an assignment."""
    fields = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": assignment}],
    }
    return client.ask(ApiKey.SYNC_GROUP, 3, fields)


def join_body(group: str) -> bytes:
    message = codec.request(ApiKey.JOIN_GROUP)
    return message.encode(build(message.cls, FIELDS | {"group_id": group}), 3)


@case("N070")
def a_group_too_large_to_write(stage: Stage) -> None:
    group = group_id()
    protocols = [{"name": "range", "metadata": b"s" * 1_100_000}]
    joined = join(stage.client, group, protocols=protocols)
    assert joined.error_code == 0
    assert sync(stage.client, group, joined).error_code == -1
    leave(stage.client, group, joined.member_id)
    again = join(stage.connect(), group)
    assert again.error_code == 0
    leave(stage.client, group, again.member_id)


@cases({"N073 nul": "a\0b", "N073 path": "../../etc/x", "N073 lines": "a\r\nb\x1b[2J"})
def odd_group_ids_are_served(stage: Stage, name: str) -> None:
    group = f"{name}{uuid.uuid4().hex[:8]}"
    before = set(files_below(stage.broker.directory.parent))
    joined = join(stage.client, group)
    assert joined.error_code == 0
    commit = {
        "group_id": group,
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
        "topics": [
            {
                "name": stage.topic(),
                "partitions": [{"partition_index": 0, "committed_offset": 7}],
            }
        ],
    }
    assert sync(stage.client, group, joined).error_code == 0
    answer = stage.client.ask(ApiKey.OFFSET_COMMIT, 3, commit)
    assert answer.topics[0].partitions[0].error_code == 0
    leave(stage.client, group, joined.member_id)
    made = set(files_below(stage.broker.directory.parent)) - before
    assert not any(group[-8:] in str(path) for path in made), made


@case("G01")
def a_parked_join_whose_client_goes_away(stage: Stage) -> None:
    group = group_id()
    first = join(stage.client, group)
    assert sync(stage.client, group, first).error_code == 0
    gone = stage.connect()
    gone.send_frame(header(ApiKey.JOIN_GROUP, 3) + join_body(group))
    beat = {"group_id": group, "generation_id": 1, "member_id": first.member_id}
    until(
        lambda: stage.client.ask(ApiKey.HEARTBEAT, 3, beat).error_code == 27,
        "the second member is asked for",
    )
    gone.socket.close()
    second = join(stage.client, group, member_id=first.member_id)
    members = [one.member_id for one in second.members]
    leave(stage.client, group, *members, first.member_id)


@case("N078")
def transactional_ids_are_not_served(stage: Stage) -> None:
    fields = {"transactional_id": "t", "transaction_timeout_ms": 0}
    answer = stage.client.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
    assert answer.error_code not in (0, -1)
    assert answer.producer_id == -1


@case("N080", alone=True)
def very_many_producer_ids(stage: Stage) -> None:
    client, count, seen = stage.client, 20_000, set()
    request = header(ApiKey.INIT_PRODUCER_ID, 0) + struct.pack(">hi", -1, 60_000)
    frame = struct.pack(">i", len(request)) + request
    for _ in range(count // 100):
        client.send(frame * 100)
        for _ in range(100):
            answer = client.answer(ApiKey.INIT_PRODUCER_ID, 0)
            assert answer.error_code == 0
            seen.add(answer.producer_id)
    assert len(seen) == count
