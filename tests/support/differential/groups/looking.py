"""Stories about finding, listing, describing and deleting groups; and broken bodies."""

from collections.abc import Iterator
from functools import partial

from kafka_protocol.wire import codec
from tests.support.brokers.raw_client import build
from tests.support.differential.common import VERSIONS
from tests.support.differential.groups.stories import (
    DESCRIBE,
    DROP,
    FETCH,
    FIND,
    JOIN,
    LIST,
    NEW_PROTOCOL,
    OF_GROUPS,
    Story,
    commit,
    describe,
    fetch,
    in_each_version,
    join,
    leave,
    send_join,
    stable,
    sync,
)
from tests.support.differential.groups.talk import Talk


def finds(talk: Talk, version: int) -> None:
    """FindCoordinator by each kind of key, alone and batched."""
    for kind in (0, 1, 2, 3, -1, 127):
        for key in ("g", "", "x" * 32_767, "a:b:0", "é\0"):
            if kind == 1 and version > 0:
                continue  # it makes __transaction_state
            talk.ask("anna", FIND, version, key=key, key_type=kind, coordinator_keys=[key])
    if version >= 4:
        for keys in ([], ["a", "b", "c"], ["a", "a"], ["", "a"]):
            talk.ask("anna", FIND, version, key_type=0, coordinator_keys=keys)


def describes(talk: Talk, version: int) -> None:
    """DescribeGroups in each state, of groups that are not there, of one twice."""
    describe(talk, version)
    describe(talk, version, groups=[])
    describe(talk, version, groups=["", "g-nobody", "g-nobody"])
    commit(talk, "outsider")
    describe(talk, version)
    describe(talk, version, include_authorized_operations=True)
    join(talk, "anna", group_instance_id="inge")
    describe(talk, version)
    sync(talk, "anna", to=["anna"])
    describe(talk, version, include_authorized_operations=True)
    describe(talk, version, groups=[talk.group, talk.group, "g-nobody"])
    send_join(talk, "berta")
    talk.parked("berta")
    describe(talk, version)
    leave(talk, "anna")
    describe(talk, version)


def lists(talk: Talk, version: int) -> None:
    """ListGroups, all and filtered; the groups of other stories are excluded of the transcript."""
    commit(talk, "outsider", group_id=talk.group + "-offsets")
    stable(talk, "anna")
    join(talk, "berta", group_id=talk.group + "-connect", protocol_type="connect")
    for states, types in (
        ([], []),
        (["Stable"], []),
        (["stable", "EMPTY"], []),
        (["Empty"], ["classic"]),
        (["CompletingRebalance"], ["Classic"]),
        (["PreparingRebalance", "Dead"], []),
        (["nonsense"], []),
        ([""], []),
        ([], ["consumer"]),
        ([], ["classic", "consumer"]),
        ([], ["nonsense"]),
        ([], [""]),
        ([], ["share"]),
        ([], ["streams"]),
    ):
        answer = talk.ask("reader", LIST, version, states_filter=states, types_filter=types)
        mine = [group for group in answer.groups if group.group_id.startswith(talk.group)]
        talk.hide("groups", talk.normal(mine, "groups"))


def drops(talk: Talk, version: int) -> None:
    """DeleteGroups of groups with and without members, of one twice, of strangers."""

    def drop(*groups: str) -> None:
        talk.ask("admin", DROP, version, groups_names=list(groups))

    second = talk.group + "-second"
    drop(talk.group)
    drop()
    drop("")
    stable(talk, "anna")
    commit(talk, "anna")
    commit(talk, "outsider", group_id=second)
    drop(talk.group, second, "g-nobody", second)
    fetch(talk)
    describe(talk, groups=[talk.group, second])
    leave(talk, "anna")
    drop(talk.group, talk.group)
    fetch(talk, topics=None)
    describe(talk)
    join(talk, "anna")
    join(talk, "carla", member_id="", group_id=second)
    drop(talk.group, second)


def asks_for_the_new_protocol(talk: Talk, version: int) -> None:
    """ConsumerGroupHeartbeat of a new member, of a stranger, without a group."""
    for fields in (
        {
            "member_id": "m" if version else "",
            "rebalance_timeout_ms": 1_000,
            "topic_partitions": [],
        },
        {"member_id": "m", "member_epoch": 5},
        {"member_id": "m", "member_epoch": -1},
        {"group_id": "", "member_id": ""},
    ):
        talk.ask("anna", NEW_PROTOCOL, version, **({"group_id": talk.group} | fields))


ODD_NAMES = (
    " ",
    " a ",
    "a/b",
    "..",
    "é中😀",
    "a\0b",
    "a\nb",
    "#",
    "__consumer_offsets",
    "x" * 32_767,
)


def odd_names(talk: Talk) -> None:
    """Groups of any name; also one that is too long for a key of `__consumer_offsets`."""
    for name in ODD_NAMES:
        talk.members.clear()
        commit(talk, "outsider", group_id=name)
        talk.ask("reader", FETCH, 7, group_id=name, topics=None)
        describe(talk, groups=[name])
        talk.ask("admin", DROP, 2, groups_names=[name])
        join(talk, "anna", group_id=name)
        sync(talk, "anna", group_id=name, to=["anna"])
        commit(talk, "anna", group_id=name)
        leave(talk, "anna", group_id=name)
        talk.ask("admin", DROP, 2, groups_names=[name])


def broken(talk: Talk) -> None:
    """Bodies that end too early, have bytes too many, or null where there is none."""
    samples: dict[int, dict[str, object]] = {
        key: {
            "group_id": talk.group,
            "member_id": "m",
            "session_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "groups_names": ["g"],
            "groups": [{"group_id": "g", "topics": []}] if key == 9 else ["g"],
            "key": "g",
            "coordinator_keys": ["g"],
        }
        for key in OF_GROUPS
    }
    for key in OF_GROUPS:
        message = codec.request(key)
        known = set(message.cls.__slots__)
        fields = {name: value for name, value in samples[key].items() if name in known}
        for version in VERSIONS[key]:
            body = message.encode(build(message.cls, fields), version)
            for label, data in (
                ("nothing", b""),
                ("one byte less", body[:-1]),
                ("half", body[: len(body) // 2]),
                ("one byte more", body + b"\0"),
                (
                    "null at first",
                    (b"\0" if message.is_flexible(version) else b"\xff\xff") + body[2:],
                ),
                (
                    "long at first",
                    (b"\xff\xff\x03" if message.is_flexible(version) else b"\x7f\xff") + body[2:],
                ),
            ):
                talk.members.clear()
                talk.raw(label, key, version, data)
                if key is LIST:
                    talk.hide("groups")  # those of other stories, too


def stories() -> Iterator[Story]:
    """All of them."""
    yield from in_each_version(FIND, "finds", finds)
    yield from in_each_version(DESCRIBE, "describes", describes)
    yield from in_each_version(LIST, "lists", lists)
    yield from in_each_version(DROP, "drops", drops)
    yield from in_each_version(NEW_PROTOCOL, "new protocol", asks_for_the_new_protocol)
    yield Story("odd names", 9, odd_names)
    yield Story("broken bodies", JOIN, partial(broken))
