"""Stories about committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.support.differential.groups.stories import (
    COMMIT,
    DELETE,
    FETCH,
    SECOND,
    TOPIC,
    Story,
    commit,
    committed,
    describe,
    fetch,
    in_each_version,
    join,
    joined,
    leave,
    send_join,
    stable,
    sync,
)
from tests.support.differential.groups.talk import Talk, subscription


def without_a_group(talk: Talk, version: int) -> None:
    """Commits of a consumer that assigns its partitions itself."""
    for offset in (0, 5, 2**63 - 1, -1, -2, -(2**63)):
        commit(talk, "anna", version, offset)
        fetch(talk)
    for metadata in (None, "", "m" * 4096, "m" * 4097, "ü" * 2048, "ü" * 4096, "m" * 32_767):
        topics = [talk.topic(TOPIC, partitions=[committed(0, 6, metadata)])]
        commit(talk, "anna", version, topics=topics)
        fetch(talk)
    for epoch in (-1, 0, 7, 2**31 - 1, -2):
        one = committed(0, 7, committed_leader_epoch=epoch)
        commit(talk, "anna", version, topics=[talk.topic(TOPIC, partitions=[one])])
        fetch(talk)
    describe(talk)


def odd_topics(talk: Talk, version: int) -> None:
    """Topics and partitions that are not there, or are named twice; nothing at all."""
    good = committed(0, 5)
    for topics in (
        [],
        [talk.topic(TOPIC, partitions=[])],
        [talk.topic("g-missing", partitions=[good]), talk.topic(TOPIC, partitions=[good])],
        [talk.topic(TOPIC, partitions=[committed(9, 5), good, committed(-1, 5)])],
        [talk.topic(TOPIC, partitions=[committed(1, 5), committed(1, 6)])],
        [talk.topic(SECOND, partitions=[good]), talk.topic(SECOND, partitions=[committed(0, 8)])],
        [talk.topic("__consumer_offsets", partitions=[good])],
        [{"name": "", "partitions": [good]}],
        [{"name": "x" * 300, "partitions": [good]}],
        [talk.topic(TOPIC, partitions=[good, committed(1, 5, "m" * 5000)])],
    ):
        commit(talk, "anna", version, topics=topics)
    commit(talk, "anna", version, group_id="")
    commit(talk, "anna", version, retention_time_ms=3_600_000)
    fetch(talk, topics=None)


def of_members(talk: Talk, version: int) -> None:
    """Commits of members, strangers and former members in each state of the group."""
    commit(talk, "anna", version, generation_id_or_member_epoch=0)
    commit(talk, "anna", version, generation_id_or_member_epoch=0, member_id="nobody")
    commit(talk, "anna", version, generation_id_or_member_epoch=-1, member_id="nobody")
    commit(talk, "anna", version, generation_id_or_member_epoch=-2)
    join(talk, "anna")
    commit(talk, "anna", version)
    sync(talk, "anna", to=["anna"])
    commit(talk, "anna", version)
    for fields in (
        {"generation_id_or_member_epoch": 0},
        {"generation_id_or_member_epoch": 2},
        {"generation_id_or_member_epoch": -1},
        {"member_id": "nobody"},
        {"member_id": ""},
        {"generation_id_or_member_epoch": -1, "member_id": ""},
        {"group_instance_id": "inge"},
        {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": "inge"},
    ):
        commit(talk, "anna", version, **fields)
    send_join(talk, "berta")
    talk.parked("berta")
    commit(talk, "anna", version, 6)
    commit(talk, "berta", version, 7)
    send_join(talk, "anna")
    joined(talk, "anna")
    joined(talk, "berta")
    commit(talk, "anna", version, 8)
    commit(talk, "berta", version, 8, generation_id_or_member_epoch=1)
    leave(talk, "anna")
    leave(talk, "berta")
    commit(talk, "anna", version, 9)
    commit(talk, "outsider", version, 10)
    fetch(talk)


def static_commits(talk: Talk, version: int) -> None:
    """A fenced instance cannot commit."""
    join(talk, "anna", group_instance_id="inge")
    sync(talk, "anna", to=["anna"])
    old = talk.member("anna").member_id
    join(talk, "anna", member_id="")
    commit(talk, "anna", version, member_id=old)
    commit(talk, "anna", version, 6)
    commit(talk, "anna", version, 7, group_instance_id="otto")
    fetch(talk)


def some_fetches(talk: Talk, version: int) -> None:
    """OffsetFetch of what is there and of what is not."""
    fetch(talk, version=version)
    fetch(talk, version=version, group_id="", groups=[{"group_id": "", "topics": []}])
    two = [talk.topic(TOPIC, partitions=[committed(0, 5), committed(1, 6, "x")])]
    two += [talk.topic(SECOND, partitions=[committed(0, 7, "", committed_leader_epoch=3)])]
    commit(talk, "anna", topics=two)
    for topics in (
        [talk.topic(TOPIC, partition_indexes=[0, 1])],
        [talk.topic(TOPIC, partition_indexes=[1, 9, -1, 1])],
        [talk.topic("g-missing", partition_indexes=[0]), talk.topic(SECOND, partition_indexes=[0])],
        [talk.topic(TOPIC, partition_indexes=[])],
        [talk.topic(TOPIC, partition_indexes=[0]), talk.topic(TOPIC, partition_indexes=[0])],
        [{"name": "", "partition_indexes": [0]}],
        [],
    ):
        fetch(talk, version=version, topics=topics)
    if version >= 2:
        fetch(talk, version=version, topics=None)
        fetch(talk, version=version, topics=None, require_stable=True)
        nobody = {"group_id": "g-nobody", "topics": None}
        fetch(talk, version=version, **nobody, groups=[nobody])


def several_groups(talk: Talk, version: int) -> None:
    """One OffsetFetch of many groups: each answers for itself."""
    commit(talk, "anna")
    second = talk.group + "-second"
    commit(talk, "anna", group_id=second, offset=9)
    named = [talk.topic(TOPIC, partition_indexes=[0, 1])]

    def one(group: str, topics: Any = named, **more: Any) -> dict[str, Any]:
        return {"group_id": group, "topics": topics} | more

    for groups in (
        [],
        [one(talk.group), one(second), one("g-nobody")],
        [one(talk.group, None), one(second, []), one("")],
        [one(talk.group), one(talk.group, [])],
        [one(talk.group, member_id="nobody", member_epoch=3)],
        [one(talk.group, member_id="nobody", member_epoch=-1)],
        [one(talk.group, member_id=None, member_epoch=3)],
        [one(talk.group, member_id="", member_epoch=0)],
        [one("g-nobody", member_id="nobody", member_epoch=3)],
    ):
        fetch(talk, version=version, groups=groups)
    stable(talk, "berta")
    mine = talk.member("berta").member_id
    for member_id, epoch in ((mine, 1), (mine, 9), ("nobody", 1), ("", -1)):
        fetch(
            talk,
            version=version,
            groups=[one(talk.group, member_id=member_id, member_epoch=epoch)],
        )


def deletions(talk: Talk, version: int) -> None:
    """OffsetDelete of groups that are there and of others; of topics that are subscribed."""

    def delete(*topics: tuple[str, list[int]], group: str | None = None) -> None:
        named = [
            {"name": name, "partitions": [{"partition_index": p} for p in partitions]}
            for name, partitions in topics
        ]
        talk.ask(
            "admin", DELETE, version, group_id=talk.group if group is None else group, topics=named
        )

    delete((TOPIC, [0]))
    delete((TOPIC, [0]), group="")
    delete()
    all_three = [talk.topic(TOPIC, partitions=[committed(0, 5), committed(1, 6)])]
    all_three += [talk.topic(SECOND, partitions=[committed(0, 7)])]
    commit(talk, "anna", topics=all_three)
    delete()
    delete((TOPIC, []))
    delete((TOPIC, [0, 0]), ("g-missing", [0]), (SECOND, [9, -1]))
    fetch(talk, topics=None)
    stable(talk, "anna")
    commit(talk, "anna", topics=all_three)
    delete((TOPIC, [0, 9]), (SECOND, [0]), ("g-missing", [0]))
    fetch(talk, topics=None)
    send_join(talk, "berta")
    talk.parked("berta")
    delete((TOPIC, [1]))
    leave(talk, "anna")
    joined(talk, "berta")
    delete((TOPIC, [1]))
    leave(talk, "berta")
    delete((TOPIC, [0, 1]))
    fetch(talk, topics=None)
    describe(talk)


def deletion_beside_strangers(talk: Talk) -> None:
    """OffsetDelete of groups whose members are no consumers, or subscribe to nothing."""
    for number, (kind, metadata) in enumerate(
        (
            ("connect", b""),
            ("consumer", b""),
            ("consumer", b"\0\0\0\0"),
            ("consumer", subscription("g-two")),
        )
    ):
        talk.members.clear()
        group = f"{talk.group}-{number}"
        commit(talk, "outsider", group_id=group)
        fields = {"protocol_type": kind, "protocols": [{"name": "range", "metadata": metadata}]}
        join(talk, "anna", group_id=group, **fields)
        sync(talk, "anna", group_id=group, to=["anna"], protocol_type=kind)
        asked = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
        talk.ask("admin", DELETE, 0, group_id=group, topics=asked)


def stories() -> Iterator[Story]:
    """All of them."""
    yield from in_each_version(COMMIT, "without a group", without_a_group)
    yield from in_each_version(COMMIT, "odd topics", odd_topics)
    yield from in_each_version(COMMIT, "of members", of_members)
    yield from in_each_version(COMMIT, "static commits", static_commits, 7)
    yield from in_each_version(FETCH, "some fetches", some_fetches)
    yield from in_each_version(FETCH, "several groups", several_groups, 8)
    yield from in_each_version(DELETE, "deletions", deletions)
    yield Story("deletion beside strangers", 0, partial(deletion_beside_strangers))
