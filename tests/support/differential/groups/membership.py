"""Stories about staying in a group: SyncGroup, Heartbeat, LeaveGroup, silent members."""

from collections.abc import Iterator
from functools import partial

from tests.support.brokers.process import until
from tests.support.differential.groups.stories import (
    BEAT,
    DESCRIBE,
    JOIN,
    LEAVE,
    RANGE,
    SYNC,
    Story,
    beat,
    commit,
    describe,
    in_each_version,
    join,
    joined,
    leave,
    send_join,
    send_sync,
    stable,
    sync,
)
from tests.support.differential.groups.talk import Talk


def syncs(talk: Talk, version: int) -> None:
    """SyncGroup of members and strangers, early and late."""
    sync(talk, "anna", version)
    sync(talk, "anna", version, group_id="")
    sync(talk, "anna", version, group_id="", protocol_name=None, protocol_type=None)
    join(talk, "anna")
    send_join(talk, "berta")
    talk.parked("berta")
    sync(talk, "anna", version, to=["anna"])
    send_join(talk, "anna")
    joined(talk, "anna")
    joined(talk, "berta")
    sync(talk, "carla", version)
    sync(talk, "anna", version, member_id="nobody")
    sync(talk, "anna", version, generation_id=1)
    sync(talk, "anna", version, generation_id=3)
    sync(talk, "anna", version, generation_id=-1)
    sync(talk, "anna", version, protocol_name="roundrobin")
    sync(talk, "anna", version, protocol_type="connect")
    sync(talk, "anna", version, group_id="")
    send_sync(talk, "berta", version, to=["anna"])
    talk.parked("berta")
    strangers = [
        {"member_id": talk.member("anna").member_id, "assignment": b"for anna"},
        {"member_id": "nobody", "assignment": b"for nobody"},
    ]
    sync(talk, "anna", version, assignments=strangers)
    talk.receive("berta")
    describe(talk)
    sync(talk, "anna", version, to=["berta"])
    sync(talk, "berta", version, protocol_name=None, protocol_type=None)
    describe(talk)


def sync_twice(talk: Talk, version: int) -> None:
    """A member that syncs again while it waits, and one that is named twice by the leader."""
    join(talk, "anna")
    send_join(talk, "berta")
    talk.parked("berta")
    send_join(talk, "anna")
    joined(talk, "anna")
    joined(talk, "berta")
    send_sync(talk, "berta", version)
    talk.parked("berta")
    talk.member("berta again").member_id = talk.member("berta").member_id
    talk.member("berta again").generation = talk.member("berta").generation
    send_sync(talk, "berta again", version)
    talk.parked("berta again")
    mine = talk.member("berta").member_id
    both = [{"member_id": mine, "assignment": b"one"}, {"member_id": mine, "assignment": b"two"}]
    sync(talk, "anna", version, assignments=both)
    talk.receive("berta again")  # of the older one Kafka answers nothing, ever


def heartbeats(talk: Talk, version: int) -> None:
    """Heartbeat of members and strangers in each state of the group."""
    beat(talk, "anna", version)
    beat(talk, "anna", version, group_id="")
    commit(talk, "outsider")
    beat(talk, "anna", version)
    join(talk, "anna")
    beat(talk, "anna", version)
    sync(talk, "anna", to=["anna"])
    beat(talk, "anna", version)
    beat(talk, "anna", version, generation_id=0)
    beat(talk, "anna", version, generation_id=2)
    beat(talk, "anna", version, generation_id=-1)
    beat(talk, "anna", version, member_id="")
    beat(talk, "anna", version, member_id="nobody")
    beat(talk, "anna", version, group_instance_id="inge")
    send_join(talk, "berta")
    talk.parked("berta")
    beat(talk, "anna", version)
    beat(talk, "berta", version)
    beat(talk, "berta", version, generation_id=1)
    leave(talk, "anna")
    joined(talk, "berta")
    leave(talk, "berta")
    beat(talk, "anna", version)


def leaves(talk: Talk, version: int) -> None:
    """LeaveGroup of strangers, of several, of a static member by its instance id."""
    leave(talk, "anna", version)
    leave(talk, "anna", version, group_id="")
    leave(talk, "anna", version, members=[])
    stable(talk, "anna", "berta", "carla")
    leave(talk, "anna", version, member_id="nobody", members=[{"member_id": "nobody"}])
    leave(talk, "anna", version, member_id="", members=[])
    send_join(talk, "dora", group_instance_id="inge")
    talk.parked("dora")
    gone = [
        {"member_id": talk.member("berta").member_id},
        {"member_id": "nobody"},
        {"member_id": "", "group_instance_id": "otto"},
        {"member_id": "", "group_instance_id": "inge"},
        {"member_id": talk.member("berta").member_id},
        {"member_id": ""},
    ]
    leave(talk, "anna", version, member_id=talk.member("berta").member_id, members=gone)
    if version >= 3:
        joined(talk, "dora")
    describe(talk)
    leave(talk, "carla", version)
    describe(talk)
    send_join(talk, "anna")
    talk.parked("anna")
    leave(
        talk,
        "anna aside",
        version,
        member_id=talk.member("anna").member_id,
        members=[{"member_id": talk.member("anna").member_id, "reason": "enough of it"}],
    )
    joined(talk, "anna")
    describe(talk)


def wrong_static_leave(talk: Talk, version: int) -> None:
    """A leave that names an instance with another one's member id fences."""
    join(talk, "anna", group_instance_id="inge")
    sync(talk, "anna", to=["anna"])
    for one in (
        {"member_id": "nobody", "group_instance_id": "inge"},
        {"member_id": talk.member("anna").member_id, "group_instance_id": "otto"},
        {"member_id": talk.member("anna").member_id},
    ):
        leave(talk, "anna", version, members=[one])
        describe(talk)


def _state(talk: Talk) -> str:
    return str(talk.aside(DESCRIBE, 5, groups=[talk.group]).groups[0].group_state)


def wait_for(talk: Talk, state: str) -> None:
    """Ask until the group is in this state."""
    until(lambda: _state(talk) == state, f"{talk.group} at {talk.side.name} is {state}")
    talk.note("reader", state, DESCRIBE, 5)


def silent_member(talk: Talk) -> None:
    """A member without heartbeats is put out after its session time-out."""
    join(talk, "anna", session_timeout_ms=300)
    sync(talk, "anna", to=["anna"])
    wait_for(talk, "Empty")
    beat(talk, "anna")
    commit(talk, "anna")
    join(talk, "anna", member_id=talk.member("anna").member_id)
    sync(talk, "anna")
    describe(talk)


def silent_beside_others(talk: Talk) -> None:
    """The others hear of a rebalance when a silent member is put out."""
    join(talk, "anna")
    send_join(talk, "berta", session_timeout_ms=500)
    talk.parked("berta")
    send_join(talk, "anna")
    joined(talk, "anna")
    joined(talk, "berta")
    sync(talk, "anna", to=["anna", "berta"])
    sync(talk, "berta")
    wait_for(talk, "PreparingRebalance")
    beat(talk, "anna")
    beat(talk, "berta")
    join(talk, "anna")
    describe(talk)


def never_joins_again(talk: Talk) -> None:
    """A member that heartbeats but does not join again is put out after the rebalance time-out."""
    stable(talk, "anna", "berta", rebalance_timeout_ms=400)
    send_join(talk, "anna", rebalance_timeout_ms=400)
    talk.parked("anna")
    beat(talk, "berta")
    joined(talk, "anna")
    beat(talk, "berta")
    describe(talk)


def never_syncs(talk: Talk) -> None:
    """A follower that does not sync is put out after the rebalance time-out."""
    join(talk, "anna", rebalance_timeout_ms=400)
    send_join(talk, "berta", rebalance_timeout_ms=400)
    talk.parked("berta")
    send_join(talk, "anna", rebalance_timeout_ms=400)
    joined(talk, "anna")
    joined(talk, "berta")
    sync(talk, "anna", to=["anna", "berta"])
    wait_for(talk, "PreparingRebalance")
    beat(talk, "berta")
    sync(talk, "berta")
    beat(talk, "anna")


def no_time_to_sync(talk: Talk) -> None:
    """A rebalance time-out of nothing: whoever does not sync at once is put out."""
    for number, rebalance_ms in enumerate((0, -1)):
        talk.members.clear()
        group = f"{talk.group}-{number}"
        join(talk, "anna", group_id=group, rebalance_timeout_ms=rebalance_ms)

        def state(group: str = group) -> str:
            return str(talk.aside(DESCRIBE, 5, groups=[group]).groups[0].group_state)

        until(lambda: state() == "Empty", f"{group} is empty")
        beat(talk, "anna", group_id=group)


def leader_never_syncs(talk: Talk) -> None:
    """A leader that does not sync is put out, and those that wait hear of a rebalance."""
    join(talk, "anna", rebalance_timeout_ms=400)
    send_join(talk, "berta", rebalance_timeout_ms=400)
    talk.parked("berta")
    send_join(talk, "anna", rebalance_timeout_ms=400)
    joined(talk, "anna")
    joined(talk, "berta")
    sync(talk, "berta")
    beat(talk, "anna")
    join(talk, "berta", rebalance_timeout_ms=400)
    sync(talk, "berta", to=["berta"])


def silent_static_member(talk: Talk) -> None:
    """A static member keeps its place for its session, not longer."""
    join(talk, "anna", group_instance_id="inge", session_timeout_ms=300)
    sync(talk, "anna", to=["anna"])
    wait_for(talk, "Empty")
    beat(talk, "anna")
    commit(talk, "anna")
    join(talk, "anna", member_id="", session_timeout_ms=60_000)
    sync(talk, "anna", to=["anna"])


def given_id_runs_out(talk: Talk) -> None:
    """A member id that is not used within the session time-out is forgotten."""
    first = talk.ask(
        "anna",
        JOIN,
        9,
        group_id=talk.group,
        session_timeout_ms=200,
        rebalance_timeout_ms=200,
        member_id="",
        protocol_type="consumer",
        protocols=RANGE,
    )
    talk.member("anna").member_id = first.member_id

    def is_forgotten() -> bool:
        answer = talk.aside(
            BEAT, 4, group_id=talk.group, generation_id=0, member_id=first.member_id
        )
        return int(answer.error_code) == 25

    until(is_forgotten, "the id is forgotten")
    talk.member("anna").member_id = first.member_id
    join(talk, "anna")


def stories() -> Iterator[Story]:
    """All of them."""
    yield from in_each_version(SYNC, "syncs", syncs)
    yield from in_each_version(SYNC, "sync twice", sync_twice)
    yield from in_each_version(BEAT, "heartbeats", heartbeats)
    yield from in_each_version(LEAVE, "leaves", leaves)
    yield from in_each_version(LEAVE, "wrong static leave", wrong_static_leave, 3)
    for tell in (
        silent_member,
        silent_beside_others,
        never_joins_again,
        never_syncs,
        no_time_to_sync,
        leader_never_syncs,
        silent_static_member,
        given_id_runs_out,
    ):
        yield Story(tell.__name__.replace("_", " "), 9, partial(tell))
