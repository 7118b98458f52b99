"""Stories that continue over a restart of the broker, and what is over by time after it."""

from collections.abc import Iterator
from functools import partial

from tests.support.brokers.process import until
from tests.support.differential.groups.stories import (
    DELETE,
    DESCRIBE,
    DROP,
    FETCH,
    SECOND,
    TOPIC,
    Story,
    beat,
    commit,
    committed,
    describe,
    fetch,
    join,
    leave,
    send_join,
    stable,
    sync,
)
from tests.support.differential.groups.talk import Talk


def stays_stable(talk: Talk) -> None:
    """Two members of a stable group, one of them static."""
    stable(talk, "anna", "berta")
    commit(talk, "anna", offset=4)
    commit(talk, "anna", offset=5, topics=[talk.topic(SECOND, partitions=[committed(0, 9, "é")])])


def stays_stable_after(talk: Talk) -> None:
    """They continue as if nothing had been."""
    describe(talk)
    fetch(talk, topics=None)
    beat(talk, "anna")
    beat(talk, "berta")
    commit(talk, "anna", offset=6)
    sync(talk, "berta")
    join(talk, "berta")
    leave(talk, "anna")
    beat(talk, "berta")


def static_after(talk: Talk) -> None:
    """A static member has its place after the restart, too."""
    describe(talk)
    beat(talk, "anna")
    join(talk, "anna", member_id="")
    beat(talk, "anna")
    describe(talk)


def static_before(talk: Talk) -> None:
    """A static member alone."""
    join(talk, "anna", group_instance_id="inge")
    sync(talk, "anna", to=["anna"])


def between_generations(talk: Talk) -> None:
    """A second member waits for the first to join again when the broker ends."""
    stable(talk, "anna")
    send_join(talk, "berta")
    talk.parked("berta")


def between_generations_after(talk: Talk) -> None:
    """The group is as it was stored last: the second member was never in it."""
    talk.member("berta").early.clear()
    describe(talk)
    beat(talk, "anna")
    beat(talk, "berta")
    join(talk, "berta", member_id=talk.member("berta").member_id)


def deleted(talk: Talk) -> None:
    """Offsets and groups that were deleted."""
    both = [talk.topic(TOPIC, partitions=[committed(0, 5), committed(1, 6)])]
    commit(talk, "anna", topics=both)
    commit(talk, "anna", topics=both, group_id=talk.group + "-gone")
    asked = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    talk.ask("admin", DELETE, 0, group_id=talk.group, topics=asked)
    talk.ask("admin", DROP, 2, groups_names=[talk.group + "-gone"])
    stable(talk, "anna")
    leave(talk, "anna")


def deleted_after(talk: Talk) -> None:
    """They stay deleted."""
    fetch(talk, topics=None)
    describe(talk)
    describe(talk, groups=[talk.group + "-gone"])
    gone = {"group_id": talk.group + "-gone", "topics": None}
    fetch(talk, **gone, groups=[gone])


def short_retention(talk: Talk, version: int) -> None:
    """A retention time in the request (version 2 to 4) ends the offset, and then the group."""
    commit(talk, "anna", version, retention_time_ms=1)

    def offset() -> int:
        one = talk.topic(TOPIC, partition_indexes=[0])
        answer = talk.aside(FETCH, 7, group_id=talk.group, topics=[one])
        return int(answer.topics[0].partitions[0].committed_offset)

    until(lambda: offset() == -1, "the offset is gone", deadline_s=20)
    fetch(talk, topics=None)
    until(
        lambda: _state(talk) == "Dead",
        "the group is gone",
        deadline_s=20,
    )
    describe(talk)


OVER_A_RESTART = (
    ("stays stable", stays_stable, stays_stable_after),
    ("stays static", static_before, static_after),
    ("between generations", between_generations, between_generations_after),
    ("stays deleted", deleted, deleted_after),
)
"""Name, what is told before, and what after."""


def stories() -> Iterator[Story]:
    """What is over by time."""
    for version in (2, 3, 4):
        yield Story("short retention", version, partial(_short, version))
    yield Story("empty group", 9, empty_group)


def _short(version: int, talk: Talk) -> None:
    short_retention(talk, version)


def empty_group(talk: Talk) -> None:
    """A group without members and offsets goes with the next look at what is due.

    That comes often here, and would take a group that has only given an id so far: so version 3.
    """
    stable(talk, "anna", version=3)
    leave(talk, "anna")
    until(lambda: _state(talk) == "Dead", "the group is gone", deadline_s=20)
    describe(talk)


def _state(talk: Talk) -> str:
    return str(talk.aside(DESCRIBE, 5, groups=[talk.group]).groups[0].group_state)
