"""Stories about getting into a group: JoinGroup, static members, who leads, how much fits in."""

from collections.abc import Iterator

from tests.support.differential.groups.stories import (
    BEAT,
    COMMIT,
    JOIN,
    LEAVE,
    LONG_MS,
    RANGE,
    ROUND_ROBIN,
    SYNC,
    Story,
    beat,
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

MADE_UP = "anna-00000000-0000-0000-0000-000000000001"
BOTH = [*RANGE, *ROUND_ROBIN]


def whole_life(talk: Talk, version: int) -> None:
    """One member from the first request to the last, all APIs about equally old."""
    versions = {
        SYNC: min(version, 5),
        BEAT: min(version, 4),
        LEAVE: min(version, 5),
        COMMIT: min(version + 2, 10),
    }
    join(talk, "anna", version)
    describe(talk, min(version, 6))
    sync(talk, "anna", versions[SYNC], to=["anna"])
    describe(talk, min(version, 6))
    beat(talk, "anna", versions[BEAT])
    commit(talk, "anna", versions[COMMIT])
    fetch(talk, "anna", min(version + 1, 10))
    join(talk, "anna", version)
    sync(talk, "anna", versions[SYNC], to=["anna"])
    leave(talk, "anna", versions[LEAVE])
    describe(talk, min(version, 6))
    leave(talk, "anna", versions[LEAVE])


def two_members(talk: Talk, version: int) -> None:
    """A second member starts a rebalance; the first one hears of it, and leads."""
    join(talk, "anna", version)
    sync(talk, "anna", to=["anna"])
    send_join(talk, "berta", version)
    talk.parked("berta")
    describe(talk)
    beat(talk, "anna")
    commit(talk, "anna")
    sync(talk, "anna", to=["anna"])
    send_join(talk, "anna", version)
    joined(talk, "anna")
    joined(talk, "berta")
    describe(talk)
    beat(talk, "berta")
    commit(talk, "berta")
    sync(talk, "berta", generation_id=1)
    sync(talk, "anna", to=["anna", "berta"])
    sync(talk, "berta")
    describe(talk)
    # A follower that joins again with the same metadata changes nothing.
    join(talk, "berta", version)
    beat(talk, "anna")
    # With other metadata it does.
    send_join(talk, "berta", version, protocols=BOTH)
    talk.parked("berta")
    beat(talk, "anna")
    send_join(talk, "anna", version, protocols=BOTH)
    joined(talk, "anna")
    joined(talk, "berta")
    leave(talk, "anna")
    send_join(talk, "berta", version)
    joined(talk, "berta")


def refused_joins(talk: Talk, version: int) -> None:
    """What is wrong with a JoinGroup by itself, to a group that is not there."""
    for fields in (
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 0},
        {"session_timeout_ms": -1},
        {"session_timeout_ms": 1_800_001},
        {"session_timeout_ms": 2**31 - 1},
        {"protocols": []},
        {"protocol_type": ""},
        {"protocol_type": "", "protocols": []},
        {"group_id": ""},
        {"group_id": "", "session_timeout_ms": 1},
        {"member_id": "nobody"},
        {"member_id": MADE_UP},
        {"member_id": MADE_UP, "group_instance_id": "inge"},
    ):
        talk.members.clear()
        join(talk, "anna", version, **fields)
        talk.members.clear()
    describe(talk)


def odd_but_served(talk: Talk, version: int) -> None:
    """JoinGroups that look wrong; each in a group of its own."""
    for number, fields in enumerate(
        (
            {"rebalance_timeout_ms": 2**31 - 1},
            {"session_timeout_ms": 1_800_000},
            {"protocols": [{"name": "", "metadata": b""}]},
            {"protocol_type": "connect", "protocols": [{"name": "x" * 30_000, "metadata": b""}]},
            {"group_instance_id": ""},
            {"group_instance_id": "has spaces and / in it"},
            {"reason": "r" * 30_000},
        )
    ):
        talk.members.clear()
        group = f"{talk.group}-{number}"
        join(talk, "anna", version, group_id=group, **fields)
        sync(talk, "anna", group_id=group, to=["anna"], protocol_name=None, protocol_type=None)
        describe(talk, groups=[group])


def unreadable(talk: Talk, version: int) -> None:
    """Bytes of a consumer that are no subscription, and a protocol twice; then somebody else."""
    for number, protocols in enumerate(
        ([{"name": "range", "metadata": b"no subscription at all"}], [*RANGE, *RANGE])
    ):
        talk.members.clear()
        group = f"{talk.group}-{number}"
        join(talk, "anna", version, group_id=group, protocols=protocols)
        describe(talk, groups=[group])
        talk.members.clear()
        send_join(talk, "berta", version, group_id=group)
        talk.parked("berta")
        describe(talk, groups=[group])


def strange_group_ids(talk: Talk, version: int) -> None:
    """Any group id but the empty one is served."""
    for ending in ("\0", "\n\x1b[31m", "../../x", "ü", "x" * 1_000, " "):
        talk.members.clear()
        join(talk, "anna", version, group_id=talk.group + ending)
        describe(talk, groups=[talk.group + ending])


def protocols_that_do_not_fit(talk: Talk, version: int) -> None:
    """A stable group takes only members that share its type and a protocol of all."""
    stable(talk, "anna", protocols=BOTH)
    join(talk, "berta", version, protocol_type="connect")
    join(talk, "berta", version, protocols=[{"name": "sticky", "metadata": b""}])
    join(talk, "berta", version, protocols=[])
    join(talk, "berta", version, protocol_type="", protocols=[])
    join(talk, "anna", version, protocols=[{"name": "sticky", "metadata": b""}])
    beat(talk, "anna")
    send_join(talk, "carla", version, protocols=ROUND_ROBIN)
    talk.parked("carla")
    join(talk, "dora", version, protocols=RANGE)
    send_join(talk, "anna", version, protocols=BOTH)
    joined(talk, "anna")
    joined(talk, "carla")
    describe(talk)


def the_vote(talk: Talk, version: int) -> None:
    """The protocol that most members put first, among those that all have."""
    a, b, c = ({"name": name, "metadata": name.encode()} for name in "abc")
    join(talk, "anna", version, protocols=[a, b, c])
    send_join(talk, "berta", version, protocols=[b, a])
    talk.parked("berta")
    send_join(talk, "carla", version, protocols=[c, b, a])
    talk.parked("carla")
    send_join(talk, "anna", version, protocols=[a, c, b])
    joined(talk, "anna")
    joined(talk, "berta")
    joined(talk, "carla")


def member_ids(talk: Talk, version: int) -> None:
    """An id that was given is good for one group; it can be dropped before it was used."""
    join(talk, "anna", version)
    mine = talk.member("anna").member_id
    join(talk, "berta", version, member_id=mine, group_id=talk.group + "-other")
    if version >= 4:
        first = talk.ask(
            "carla",
            JOIN,
            version,
            group_id=talk.group,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id="",
            protocol_type="consumer",
            protocols=RANGE,
        )
        talk.member("carla").member_id = first.member_id
        describe(talk)
        beat(talk, "carla")
        sync(talk, "carla")
        commit(talk, "carla")
        leave(talk, "carla")
        join(talk, "carla", version, member_id=first.member_id)


def as_many_as_fit(talk: Talk, version: int) -> None:
    """`group.max.size` is four here; the fifth is refused, the others keep their places."""
    names = ["anna", "berta", "carla", "dora"]
    stable(talk, *names)
    join(talk, "emma", version)
    beat(talk, "anna")
    join(talk, "emma", version, group_instance_id="inge")
    describe(talk)
    leave(talk, "dora")
    send_join(talk, "emma", version, group_instance_id=None)
    talk.parked("emma")


def static_member(talk: Talk, version: int) -> None:
    """A static member comes again without its id: the same place, no rebalance."""
    join(talk, "anna", version, group_instance_id="inge")
    sync(talk, "anna", to=["anna"])
    old = talk.member("anna").member_id
    describe(talk)
    join(talk, "anna", version, member_id="")
    sync(talk, "anna")
    beat(talk, "anna")
    describe(talk)
    # The old id speaks.
    beat(talk, "anna", member_id=old)
    sync(talk, "anna", member_id=old)
    commit(talk, "anna", member_id=old)
    join(talk, "anna", version, member_id=old)
    leave(talk, "anna", members=[{"member_id": old, "group_instance_id": "inge"}])
    # An id without its instance, an instance without an id, and another one's.
    beat(talk, "anna", group_instance_id=None)
    beat(talk, "anna", group_instance_id="otto")
    beat(talk, "anna", member_id="")
    commit(talk, "anna", group_instance_id="otto")
    commit(talk, "anna", group_instance_id=None)
    join(talk, "anna", version, group_instance_id="otto", member_id=talk.member("anna").member_id)
    talk.member("anna").instance = "inge"
    leave(talk, "anna", members=[{"member_id": "", "group_instance_id": "inge"}])
    describe(talk)


def static_member_changes(talk: Talk, version: int) -> None:
    """A static member that comes again with another protocol starts a rebalance."""
    join(talk, "anna", version, group_instance_id="inge", protocols=BOTH)
    sync(talk, "anna", to=["anna"])
    send_join(talk, "anna", version, member_id="", protocols=ROUND_ROBIN)
    joined(talk, "anna")
    describe(talk)
    sync(talk, "anna", to=["anna"], protocol_name="roundrobin")
    changed = [{"name": "roundrobin", "metadata": subscription("g-one", "g-two")}]
    send_join(talk, "anna", version, member_id="", protocols=changed)
    joined(talk, "anna")
    describe(talk)


def static_follower(talk: Talk, version: int) -> None:
    """A static follower and a static leader each come again while the group is stable."""
    join(talk, "anna", version, group_instance_id="inge")
    send_join(talk, "berta", version, group_instance_id="bo")
    talk.parked("berta")
    send_join(talk, "anna", version)
    joined(talk, "anna")
    joined(talk, "berta")
    sync(talk, "anna", to=["anna", "berta"])
    sync(talk, "berta")
    join(talk, "berta", version, member_id="")
    beat(talk, "anna")
    sync(talk, "berta")
    join(talk, "anna", version, member_id="")
    beat(talk, "berta")
    sync(talk, "anna", to=["anna"])
    describe(talk)


def static_doubles(talk: Talk, version: int) -> None:
    """Two clients of one instance id: while one waits, the other takes its place."""
    stable(talk, "anna")
    send_join(talk, "berta", version, group_instance_id="inge")
    talk.parked("berta")
    send_join(talk, "carla", version, group_instance_id="inge")
    joined(talk, "berta")
    talk.parked("carla")
    send_join(talk, "anna", version)
    joined(talk, "anna")
    joined(talk, "carla")
    sync(talk, "anna", to=["anna", "carla"])
    sync(talk, "carla")
    describe(talk)


def too_large(talk: Talk, version: int) -> None:
    """A subscription whose record does not fit into `__consumer_offsets`."""
    big = [{"name": "range", "metadata": subscription("g-one", user_data=b"x" * 1_200_000)}]
    join(talk, "anna", version, protocols=big)
    sync(talk, "anna", to=["anna"])
    describe(talk)
    join(talk, "anna", version)
    sync(talk, "anna", to=["anna"])
    commit(talk, "anna", topics=[talk.topic("g-one", partitions=[committed(0, 3)])])
    describe(talk)


def stories() -> Iterator[Story]:
    """All of them."""
    for name, tell, low in (
        ("whole life", whole_life, 0),
        ("two members", two_members, 0),
        ("refused joins", refused_joins, 0),
        ("odd joins", odd_but_served, 0),
        ("unreadable subscription", unreadable, 9),
        ("strange group ids", strange_group_ids, 0),
        ("other protocols", protocols_that_do_not_fit, 0),
        ("the vote", the_vote, 0),
        ("member ids", member_ids, 0),
        ("as many as fit", as_many_as_fit, 5),
        ("static member", static_member, 5),
        ("static member changes", static_member_changes, 5),
        ("static follower", static_follower, 5),
        ("static doubles", static_doubles, 5),
        ("too large", too_large, 8),
    ):
        yield from in_each_version(JOIN, name, tell, low)
