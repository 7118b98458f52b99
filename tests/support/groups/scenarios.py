"""What members of a group live through, written once for all clients and both brokers.

Each scenario is given a stage: it starts members of one client, and fails where something is not as
a user of groups may expect.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.brokers.process import until
from tests.support.groups.clients import (
    ADMIN,
    COMES_BACK,
    COMMIT,
    COOPERATIVE,
    FENCED,
    GIVES_UP,
    METADATA,
    PATTERN,
    REFUSAL,
    STATIC,
    Client,
)
from tests.support.groups.member import Member, Partition
from tests.support.groups.world import World

SESSION_MS = 2_500
COUNT = 20


@dataclass
class Stage:
    """Where a scenario plays: a broker, a client, a group and a topic of its own."""

    world: World
    client: Client
    directory: Path
    group: str
    members: list[Member] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return f"t-{self.group}"

    def start(self, name: str, client: Client | None = None) -> Member:
        """A process that has joined nothing yet."""
        made = Member(client or self.client, self.world.bootstrap, self.directory, name)
        self.members.append(made)
        made.wait(lambda: made.of("ready"), "ready")
        return made

    def join(self, name: str, *topics: str, **more: object) -> Member:
        """A member of the group, reading the topic unless others are named."""
        made = self.start(name)
        return made.subscribe(
            self.group, *(topics or (self.topic,)), **({"session_ms": SESSION_MS} | more)
        )

    def partitions(self, count: int, topic: str = "") -> set[Partition]:
        return {(topic or self.topic, number) for number in range(count)}

    def filled(self, partitions: int = 4, count: int = COUNT) -> None:
        """The topic with records."""
        self.world.create(self.topic, partitions)
        self.world.fill(self.topic, partitions, count)

    def close(self) -> None:
        for one in self.members:
            one.kill()


def owns(member: Member, wanted: set[Partition]) -> None:
    """Wait until it reads just these."""
    member.wait(lambda: member.owned == wanted, f"it owns {sorted(wanted)}")


def share(members: list[Member], wanted: set[Partition], each: int = 1) -> None:
    """Wait until they share them, each partition once, nobody without."""

    def is_shared() -> bool:
        parts = [one.owned for one in members]
        total = sum(len(part) for part in parts)
        return (
            total == len(wanted) and set().union(*parts) == wanted and min(map(len, parts)) >= each
        )

    try:
        until(is_shared, "the partitions are shared")
    except AssertionError as error:
        said = "\n".join(f"{one.name}: {one.said()}" for one in members)
        raise AssertionError(f"{error}\n{said}") from None


def read_all(members: list[Member], topic: str, partitions: int, end: int, start: int = 0) -> None:
    """Wait until each offset was read by some member."""
    wanted = {(topic, p, o) for p in range(partitions) for o in range(start, end)}

    def missing() -> int:
        return len(wanted - {record for one in members for record in one.records})

    try:
        until(lambda: missing() == 0, f"all records of {topic} are read")
    except AssertionError as error:
        said = "\n".join(f"{one.name}: {one.said()}" for one in members)
        raise AssertionError(f"{error}; {missing()} missing\n{said}") from None


def in_order(member: Member) -> None:
    """Each partition's records came in order and once, if it was given once."""
    last: dict[Partition, int] = {}
    for topic, partition, offset in member.records:
        assert offset > last.get((topic, partition), -1), (topic, partition, offset)
        last[topic, partition] = offset


def alone(stage: Stage) -> None:
    """One member reads all, commits, and another one continues from there."""
    stage.filled()
    first = stage.join("first")
    owns(first, stage.partitions(4))
    read_all([first], stage.topic, 4, COUNT)
    in_order(first)
    if COMMIT in stage.client.can:
        event = first.commit()
        assert event["error"] is None, event
        assert {o for o, _ in stage.world.committed(stage.group).values()} == {COUNT}
        assert set(first.committed(*stage.partitions(4)).values()) == {COUNT}
    first.close()
    until(
        lambda: {o for o, _ in stage.world.committed(stage.group).values()} == {COUNT},
        "all is committed",
    )
    assert stage.world.describe(stage.group).group_state == "Empty"
    stage.world.fill(stage.topic, 4, 5, first=COUNT)
    second = stage.join("second")
    read_all([second], stage.topic, 4, COUNT + 5, COUNT)
    assert {offset for _, _, offset in second.records} == set(range(COUNT, COUNT + 5))


def shared(stage: Stage) -> None:
    """Two members share, a third comes and goes."""
    stage.filled(6)
    first = stage.join("first")
    owns(first, stage.partitions(6))
    second = stage.join("second")
    share([first, second], stage.partitions(6), 3)
    third = stage.join("third")
    share([first, second, third], stage.partitions(6), 2)
    third.close()
    share([first, second], stage.partitions(6), 3)
    stage.world.fill(stage.topic, 6, 5, first=COUNT)
    read_all([first, second], stage.topic, 6, COUNT + 5, COUNT)


def killed(stage: Stage) -> None:
    """A killed member's partitions go to the other after its session."""
    stage.filled()
    first = stage.join("first")
    second = stage.join("second")
    share([first, second], stage.partitions(4), 2)
    second.kill()
    owns(first, stage.partitions(4))
    stage.world.fill(stage.topic, 4, 5, first=COUNT)
    read_all([first], stage.topic, 4, COUNT + 5, COUNT)


def paused(stage: Stage) -> None:
    """A member that was stopped past its session cannot commit over the other one."""
    stage.filled()
    first = stage.join("first")
    second = stage.join("second")
    share([first, second], stage.partitions(4), 2)
    read_all([first, second], stage.topic, 4, COUNT)
    lost = sorted(second.owned)
    second.pause()
    owns(first, stage.partitions(4))
    stage.world.fill(stage.topic, 4, 5, first=COUNT)
    read_all([first], stage.topic, 4, COUNT + 5, COUNT)
    assert first.commit()["error"] is None
    second.do("commit")
    second.resume()
    second.wait(lambda: second.of("committed"), "its commit is answered")
    after = stage.world.committed(stage.group)
    assert {after[one][0] for one in lost} == {COUNT + 5}, after
    share([first, second], stage.partitions(4), 2)


def static_restart(stage: Stage) -> None:
    """A static member that comes again within its session starts no rebalance."""
    stage.filled()
    first = stage.join("first", instance="one", session_ms=20_000)
    second = stage.join("second", instance="two", session_ms=20_000)
    share([first, second], stage.partitions(4), 2)
    until(lambda: stage.world.describe(stage.group).group_state == "Stable", "it is stable")
    had, changes = second.owned, len(first.changes)
    second.kill()
    again = stage.join("again", instance="two", session_ms=20_000)
    owns(again, had)
    stage.world.fill(stage.topic, 4, 5, first=COUNT)
    read_all([first, again], stage.topic, 4, COUNT + 5, COUNT)
    assert len(first.changes) == changes, first.said()


def static_double(stage: Stage) -> None:
    """Of two members with one instance id the older one is fenced."""
    stage.filled(2)
    first = stage.join("first", instance="one", session_ms=20_000)
    owns(first, stage.partitions(2))
    second = stage.join("second", instance="one", session_ms=20_000)
    owns(second, stage.partitions(2))
    stage.world.fill(stage.topic, 2, 5, first=COUNT)
    read_all([second], stage.topic, 2, COUNT + 5, COUNT)
    until(
        lambda: first.of("error") or first.process.poll() is not None or not first.owned,
        "the older one hears of it",
    )


def cooperative(stage: Stage) -> None:
    """With cooperative rebalancing nothing is taken that stays."""
    stage.filled(6)
    first = stage.join("first", strategy="cooperative-sticky")
    owns(first, stage.partitions(6))
    second = stage.join("second", strategy="cooperative-sticky")
    share([first, second], stage.partitions(6), 3)
    kept = first.owned
    taken = {(t, p) for event in first.of("revoked", "lost") for t, p in event["gone"]}
    assert not taken & kept, f"{sorted(taken & kept)} were taken and given back"
    second.close()
    owns(first, stage.partitions(6))


def mixed(stage: Stage) -> None:
    """A cooperative member is refused by a group of eager ones, which continues."""
    stage.filled()
    first = stage.join("first", strategy="range")
    owns(first, stage.partitions(4))
    second = stage.join("second", strategy="cooperative-sticky")
    until(
        lambda: second.of("error") or second.process.poll() is not None,
        "the second one is refused",
    )
    assert second.owned == set()
    stage.world.fill(stage.topic, 4, 5, first=COUNT)
    read_all([first], stage.topic, 4, COUNT + 5)
    assert first.owned == stage.partitions(4)


def broker_killed(stage: Stage) -> None:
    """Commits outlive a SIGKILL of the broker, and so does the group."""
    stage.filled()
    first = stage.join("first", session_ms=10_000)
    owns(first, stage.partitions(4))
    read_all([first], stage.topic, 4, COUNT)
    assert first.commit()["error"] is None
    stage.world.crash()
    stage.world.ready()
    assert {o for o, _ in stage.world.committed(stage.group).values()} == {COUNT}
    stage.world.fill(stage.topic, 4, 5, first=COUNT)
    read_all([first], stage.topic, 4, COUNT + 5, COUNT)
    until(lambda: first.commit()["error"] is None, "it commits again")
    assert {o for o, _ in stage.world.committed(stage.group).values()} == {COUNT + 5}


def reset(stage: Stage) -> None:
    """Without a commit, `auto.offset.reset` decides."""
    stage.filled(2)
    late = stage.join("late", reset="latest")
    owns(late, stage.partitions(2))

    def has_read() -> bool:
        stage.world.fill(stage.topic, 2, 1)  # the position is looked up some time after
        return {p for _, p, _ in late.records} == {0, 1}

    until(has_read, "it reads what is new")
    assert min(offset for _, _, offset in late.records) >= COUNT


def metadata(stage: Stage) -> None:
    """A commit carries a text; a text that is too long is refused."""
    stage.filled(2)
    first = stage.join("first")
    owns(first, stage.partitions(2))
    event = first.commit([[stage.topic, 0, 7, "a text é"]])
    assert event["error"] is None, event

    def stored() -> tuple[int, str]:
        offset, text = stage.world.committed(stage.group)[stage.topic, 0]
        return offset, text.rstrip("\0")  # confluent-kafka counts the end of its string, too

    assert stored() == (7, "a text é")
    assert first.commit([[stage.topic, 0, 9, "m" * 5_000]])["error"] is not None
    assert stored() == (7, "a text é")


def several_topics(stage: Stage) -> None:
    """Two members share the partitions of two topics."""
    other = stage.topic + "-other"
    stage.filled()
    stage.world.create(other, 4)
    stage.world.fill(other, 4, COUNT)
    first = stage.join("first", stage.topic, other)
    second = stage.join("second", stage.topic, other)
    share([first, second], stage.partitions(4) | stage.partitions(4, other), 2)
    read_all([first, second], stage.topic, 4, COUNT)
    read_all([first, second], other, 4, COUNT)


def pattern(stage: Stage) -> None:
    """A subscription by pattern takes a topic that appears later."""
    stage.filled(2)
    first = stage.start("first")
    first.do("subscribe", group=stage.group, pattern=f"^{stage.topic}.*", session_ms=SESSION_MS)
    owns(first, stage.partitions(2))
    other = stage.topic + "-later"
    stage.world.create(other, 2)
    owns(first, stage.partitions(2) | stage.partitions(2, other))
    stage.world.fill(other, 2, 5)
    read_all([first], other, 2, 5)


def administered(stage: Stage) -> None:
    """The library's admin lists, describes, alters and deletes."""
    stage.filled(2)
    first = stage.join("first")
    owns(first, stage.partitions(2))
    read_all([first], stage.topic, 2, COUNT)
    assert first.commit()["error"] is None
    admin = stage.start("admin")

    def ask(what: str, **fields: object) -> object:
        event = admin.admin(what, group=stage.group, **fields)
        return (
            "unsupported" if event["error"] == "unsupported" else (event["answer"], event["error"])
        )

    until(lambda: stage.world.describe(stage.group).group_state == "Stable", "it is stable")
    listed = admin.admin("list")["answer"]
    assert stage.group in [name for name, _ in listed], listed
    described = admin.admin("describe", group=stage.group)["answer"]
    assert (described["state"].upper(), described["members"]) == ("STABLE", 1)
    found = admin.admin("offsets", group=stage.group)["answer"]
    assert sorted(one[:3] for one in found) == [[stage.topic, 0, COUNT], [stage.topic, 1, COUNT]]
    refused = ask("delete")
    assert refused == "unsupported" or refused[1] is not None  # type: ignore[index]
    refused = ask("delete_offsets", partitions=[[stage.topic, 0]])
    assert refused == "unsupported" or refused[1] is not None  # type: ignore[index]
    first.close()
    if ask("alter", offsets=[[stage.topic, 0, 3, ""]]) != "unsupported":
        assert stage.world.committed(stage.group)[stage.topic, 0][0] == 3
    if ask("delete_offsets", partitions=[[stage.topic, 0]]) != "unsupported":
        assert list(stage.world.committed(stage.group)) == [(stage.topic, 1)]
    if ask("delete") != "unsupported":
        assert stage.world.describe(stage.group).group_state == "Dead"
        assert stage.world.committed(stage.group) == {}


def deleted(stage: Stage) -> None:
    """Offsets go with their topic, and with their group; who comes later begins again."""
    stage.filled(2)
    other = stage.topic + "-other"
    stage.world.create(other, 1)
    first = stage.join("first")
    owns(first, stage.partitions(2))
    read_all([first], stage.topic, 2, COUNT)
    assert first.commit()["error"] is None
    first.close()
    stage.world.ask(
        8,  # type: ignore[arg-type]
        7,
        group_id=stage.group,
        topics=[
            {
                "name": other,
                "partitions": [
                    {"partition_index": 0, "committed_offset": 4, "committed_metadata": ""}
                ],
            }
        ],
    )
    assert len(stage.world.committed(stage.group)) == 3
    stage.world.delete_topic(other)
    until(
        lambda: set(stage.world.committed(stage.group)) == stage.partitions(2),
        "the offsets of the deleted topic are gone",
    )
    deletion = stage.world.ask(42, 1, groups_names=[stage.group])  # type: ignore[arg-type]
    assert deletion.results[0].error_code == 0
    second = stage.join("second")
    read_all([second], stage.topic, 2, COUNT)


SCENARIOS: dict[str, tuple[Callable[[Stage], None], frozenset[str]]] = {
    "alone": (alone, frozenset()),
    "shared": (shared, frozenset()),
    "killed": (killed, frozenset()),
    "paused": (paused, frozenset({COMMIT, GIVES_UP})),
    "static-restart": (static_restart, frozenset({STATIC})),
    "static-double": (static_double, frozenset({FENCED})),
    "cooperative": (cooperative, frozenset({COOPERATIVE})),
    "mixed": (mixed, frozenset({COOPERATIVE, REFUSAL})),
    "broker-killed": (broker_killed, frozenset({COMMIT, COMES_BACK})),
    "reset": (reset, frozenset()),
    "metadata": (metadata, frozenset({METADATA})),
    "several-topics": (several_topics, frozenset()),
    "pattern": (pattern, frozenset({PATTERN})),
    "administered": (administered, frozenset({COMMIT, ADMIN})),
    "deleted": (deleted, frozenset({COMMIT})),
}
"""Each with what a client must be able to do."""
