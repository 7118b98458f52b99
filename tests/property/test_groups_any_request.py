"""Any request is answered: whatever its fields say, nothing is raised and the answer is one."""

from typing import Any
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from broker.coordinator.group.decision import Caller, Ticket
from broker.coordinator.group.decision_builder import GroupLimits
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from tests.support.coordinator.world import World

SERVED = {
    ApiKey.JOIN_GROUP: range(10),
    ApiKey.SYNC_GROUP: range(6),
    ApiKey.HEARTBEAT: range(5),
    ApiKey.LEAVE_GROUP: range(6),
    ApiKey.OFFSET_COMMIT: range(2, 11),
    ApiKey.TXN_OFFSET_COMMIT: range(6),
    ApiKey.OFFSET_DELETE: range(1),
}
MEMBERS = [f"c-{UUID(int=number)}" for number in range(1, 4)]
LONG = "x" * 32_767
I32 = st.sampled_from([-(2**31), -1, 0, 1, 2, 10_000, 2**31 - 1])
I64 = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
NAMES = st.sampled_from(["", "a", "b", "\0", "ü", LONG])
IDS = st.sampled_from(["", "nobody", *MEMBERS])
MAYBE = st.none() | NAMES
DATA = st.sampled_from([b"", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", b"\xff" * 9, b"x" * 300])
GROUPS = st.sampled_from(["g", "g", "g", "h", "", LONG])
METADATA = st.sampled_from([None, "", "m", "y" * 5_000, LONG])

FIELDS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.JOIN_GROUP: {
        "session_timeout_ms": I32,
        "rebalance_timeout_ms": I32,
        "member_id": IDS,
        "group_instance_id": MAYBE,
        "protocol_type": NAMES,
        "protocols": st.lists(st.tuples(NAMES, DATA), max_size=3),
    },
    ApiKey.SYNC_GROUP: {
        "generation_id": I32,
        "member_id": IDS,
        "group_instance_id": MAYBE,
        "protocol_type": MAYBE,
        "protocol_name": MAYBE,
        "assignments": st.lists(st.tuples(IDS, DATA), max_size=3),
    },
    ApiKey.HEARTBEAT: {"generation_id": I32, "member_id": IDS, "group_instance_id": MAYBE},
    ApiKey.LEAVE_GROUP: {
        "member_id": IDS,
        "members": st.lists(st.tuples(IDS, MAYBE), max_size=3),
    },
    ApiKey.OFFSET_COMMIT: {
        "generation_id_or_member_epoch": I32,
        "member_id": IDS,
        "group_instance_id": MAYBE,
        "retention_time_ms": I64,
        "topics": st.lists(st.tuples(NAMES, I32, I64, METADATA), max_size=3),
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "generation_id": I32,
        "member_id": IDS,
        "group_instance_id": MAYBE,
        "topics": st.lists(st.tuples(NAMES, I32, I64, METADATA), max_size=3),
    },
    ApiKey.OFFSET_DELETE: {"topics": st.lists(st.tuples(NAMES, I32), max_size=3)},
}
STEPS = st.lists(
    st.sampled_from(sorted(FIELDS)).flatmap(
        lambda api: st.tuples(
            st.just(ApiKey(api)),
            st.sampled_from(SERVED[ApiKey(api)]),
            st.fixed_dictionaries({"group_id": GROUPS, **FIELDS[ApiKey(api)]}),
            st.sampled_from(["c", "", LONG]),
            st.sampled_from([0, 0, 0, 3_000, 60_000]),
        )
    ),
    max_size=14,
)


def built(api: ApiKey, fields: dict[str, Any]) -> Any:
    """The request's struct."""
    cls = request(api).cls
    made = dict(fields)
    if "protocols" in made:
        made["protocols"] = [
            cls.Protocols(name=name, metadata=data) for name, data in made["protocols"]
        ]
    if "assignments" in made:
        made["assignments"] = [
            cls.Assignments(member_id=name, assignment=data) for name, data in made["assignments"]
        ]
    if "members" in made:
        made["members"] = [
            cls.Members(member_id=name, group_instance_id=instance)
            for name, instance in made["members"]
        ]
    if "topics" in made:
        made["topics"] = [_topic(cls, *each) for each in made["topics"]]
    return cls(**made)


def _topic(cls: Any, name: str, partition: int, offset: int = 0, metadata: Any = None) -> Any:
    slot = cls.Topics.Partitions(partition_index=partition)
    if hasattr(slot, "committed_offset"):
        slot.committed_offset, slot.committed_metadata = offset, metadata
    return cls.Topics(name=name, partitions=[slot])


def rolled(world: World, ticket: Ticket) -> str:
    """An rng of few values, so that requests meet ids; as real ones never what is there already."""
    groups = world.state._groups.values()
    taken = {name[-36:] for group in groups for name in (*group.members, *group.pending)}
    uuid = str(UUID(int=ticket % len(MEMBERS) + 1))
    return str(UUID(int=1_000 + ticket)) if uuid in taken else uuid


def send(world: World, api: ApiKey, version: int, asked: Any, client_id: str) -> Ticket:
    """Ask the state, as a handler does."""
    state, now = world.state, world.now

    def decide(ticket: Ticket) -> Any:
        match api:
            case ApiKey.JOIN_GROUP:
                uuid, caller = rolled(world, ticket), Caller(client_id, "/127.0.0.1")
                return state.join(ticket, caller, asked, version=version, uuid=uuid, now=now)
            case ApiKey.SYNC_GROUP:
                return state.sync(ticket, asked, version=version, now=now)
            case ApiKey.HEARTBEAT:
                return state.heartbeat(ticket, asked, now=now)
            case ApiKey.LEAVE_GROUP:
                return state.leave(ticket, asked, version=version, now=now)
            case ApiKey.OFFSET_COMMIT:
                return state.commit_offsets(ticket, asked, version=version, now=now)
            case ApiKey.TXN_OFFSET_COMMIT:
                return state.commit_transaction_offsets(ticket, asked, now=now)
            case _:
                return state.delete_offsets(ticket, asked, now=now)

    return world.ask(decide)


JOIN_OF_NO_CLIENT = (
    ApiKey.JOIN_GROUP,
    3,
    {
        "group_id": "g",
        "member_id": "",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "group_instance_id": None,
        "protocol_type": "a",
        "protocols": [("a", b"")],
    },
    "",
    0,
)
NOTHING = (ApiKey.OFFSET_DELETE, 0, {"group_id": "h", "topics": []}, "c", 0)


@given(STEPS)
@example([JOIN_OF_NO_CLIENT, NOTHING, NOTHING, JOIN_OF_NO_CLIENT])  # the rng decides the same way
@example(
    [
        (
            ApiKey.JOIN_GROUP,
            3,
            {
                "group_id": "g",
                "member_id": "",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": -1,
                "group_instance_id": LONG,
                "protocol_type": "consumer",
                "protocols": [("range", b"")],
            },
            LONG,
            60_000,
        )
    ]
)
def test_any_request_is_answered_and_its_answer_is_one(steps: list[Any]) -> None:
    world = World(GroupLimits(initial_rebalance_delay_ms=0, group_size_max=3))
    asked: dict[Ticket, tuple[ApiKey, int]] = {}
    for api, version, fields, client_id, ms in steps:
        ticket = send(world, api, version, built(api, fields), client_id)
        asked[ticket] = (api, version)
        world.advance(ms)
    world.advance(2**31)  # the longest rebalance time-out
    for ticket, (api, version) in asked.items():
        answer = world.answers[ticket]
        if api is ApiKey.JOIN_GROUP and version < 7:
            answer.protocol_name = answer.protocol_name or ""  # as the handler does
        data = response(api).encode(answer, version)
        assert response(api).decode(data, version)[1] == len(data)
    again = world.restarted()
    assert again.all_offsets() == world.all_offsets()
    for slot in (world.describe("g"), world.describe("h")):
        cls = response(ApiKey.DESCRIBE_GROUPS).cls
        assert response(ApiKey.DESCRIBE_GROUPS).encode(cls(groups=[slot]), 6)
