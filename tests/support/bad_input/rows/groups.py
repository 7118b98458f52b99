"""Consumer groups and producer ids."""

import select
import struct
import uuid
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import On, case, cases
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


@cases({f"N067 {ms} ms": ms for ms in (1, 0, -1, 5_999, 2**31 - 1)})
def session_timeouts(stage: Stage, timeout_ms: int) -> None:
    assert join(stage.client, group_id(), session_timeout_ms=timeout_ms).error_code == 26


@case("N067")
def an_empty_group_id(stage: Stage) -> None:
    assert join(stage.client, "").error_code == ErrorCode.INVALID_GROUP_ID


@cases(
    {
        "N068 no protocols": {"protocols": []},
        "N068 no type": {"protocol_type": ""},
    }
)
def without_protocols(stage: Stage, fields: dict[str, object]) -> None:
    assert join(stage.client, group_id(), **fields).error_code == 23


@case("N068")
def another_protocol_than_the_members(stage: Stage) -> None:
    group = group_id()
    first = join(stage.client, group)
    other = join(stage.connect(), group, protocols=[{"name": "other", "metadata": b""}])
    assert other.error_code == 23
    other = join(stage.connect(), group, protocol_type="connect")
    assert other.error_code == 23
    leave(stage.client, group, first.member_id)


@case("N069", on=On.NARROW)
def one_member_too_many(stage: Stage) -> None:
    group = group_id()
    first = join(stage.client, group)
    assert sync(stage.client, group, first).error_code == 0
    members = [stage.connect() for _ in range(4)]
    for client in members:
        client.send_frame(header(ApiKey.JOIN_GROUP, 3) + join_body(group))
    # Three wait for the first to join again; the group has no more.
    refused = until(lambda: ready(members), "one of them is refused")
    assert refused.answer(ApiKey.JOIN_GROUP, 3).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    leave(stage.client, group, first.member_id)
    members.remove(refused)
    joined = [one.answer(ApiKey.JOIN_GROUP, 3) for one in members]
    assert [one.error_code for one in joined] == [0, 0, 0]
    leave(stage.client, group, *(one.member_id for one in joined))


def ready(clients: list[RawClient]) -> RawClient | None:
    """One that has an answer."""
    sockets = select.select([one.socket for one in clients], [], [], 0)[0]
    return next((one for one in clients if one.socket in sockets), None)


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


@case("N071")
def an_unknown_member(stage: Stage) -> None:
    group, client = group_id(), stage.client
    asked: dict[str, Any] = {"group_id": group, "generation_id": 3, "member_id": "nobody"}
    joined = join(client, group)
    assert client.ask(ApiKey.HEARTBEAT, 3, asked).error_code == 25
    assert client.ask(ApiKey.SYNC_GROUP, 3, asked | {"assignments": []}).error_code == 25
    left = {"group_id": group, "member_id": "nobody"}
    assert client.ask(ApiKey.LEAVE_GROUP, 0, left).error_code == 25
    assert join(client, group, member_id="nobody").error_code == 25
    asked["generation_id"], asked["member_id"] = 77, joined.member_id
    assert client.ask(ApiKey.HEARTBEAT, 3, asked).error_code == ErrorCode.ILLEGAL_GENERATION
    leave(client, group, joined.member_id)


@case("N072")
def a_replaced_static_member(stage: Stage) -> None:
    group = group_id()
    old = join(stage.client, group, group_instance_id="one")
    new = join(stage.connect(), group, group_instance_id="one")
    assert new.member_id != old.member_id
    beat = {
        "group_id": group,
        "generation_id": new.generation_id,
        "member_id": old.member_id,
        "group_instance_id": "one",
    }
    code = stage.client.ask(ApiKey.HEARTBEAT, 3, beat).error_code
    assert code == ErrorCode.FENCED_INSTANCE_ID
    leave(stage.client, group, new.member_id)


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


@case("N073")
def metadata_of_an_offset_too_long(stage: Stage) -> None:
    group = group_id()
    leave(stage.client, group, join(stage.client, group).member_id)  # its coordinator is there
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m" * 5_000}
    fields = {
        "group_id": group,
        "member_id": "",
        "topics": [{"name": stage.topic(), "partitions": [partition]}],
    }
    answer = stage.client.ask(ApiKey.OFFSET_COMMIT, 3, fields)
    code = answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE


@case("N075")
def a_group_with_members_is_not_deleted(stage: Stage) -> None:
    group = group_id()
    joined = join(stage.client, group)
    fields = {"groups_names": [group, "no such group", ""]}
    answer = stage.client.ask(ApiKey.DELETE_GROUPS, 1, fields)
    codes = {one.group_id: one.error_code for one in answer.results}
    assert codes == {group: 68, "no such group": 69, "": 69}
    leave(stage.client, group, joined.member_id)
    answer = stage.client.ask(ApiKey.DELETE_GROUPS, 1, {"groups_names": [group]})
    assert answer.results[0].error_code == 0


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
