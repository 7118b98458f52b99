"""Stories of a simulated quorum: a text with commands and what came of each, told again exactly.

A line that begins with `#` is for the reader, one with `> ` is a command; what follows is its
output. Times are virtual milliseconds. Messages take 0.5 ms, disks 0.5 ms, clocks agree; the oracle
looks at every step. `NODES` is ids with commas, or `all`, `leader`, `others` (than the leader).

    cluster voters=3 observers=0 dynamic=True ...   any field of QuorumPlan; the nodes start
    elect                     until a leader has committed something
    run MS                    let time pass
    until-log NODE END        until a node's log ends there or later, 10 s at most
    until-role NODE ROLE      until a node has that role, 60 s at most
    propose NODE COUNT        a decision of so many records that do nothing, at a leader
    stand NODES               their clocks jump beyond every election and fetch timeout
    cut NODES NODES           nothing goes from the first to the second, nor back
    one-way NODES NODES       nothing goes from the first to the second
    heal                      no cut is left
    crash, start, close, wipe, snapshot NODES
    logs, states              print them
    expect leader NODE | no-leader | equal | committed END | loading NODE (a snapshot)
    expect epoch NODE EPOCH | role NODE ROLE
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.active.decisions import Outcome
from metadata_topic.raft.effects import Effect, RoleChanged
from metadata_topic.raft.events import Event
from metadata_topic.raft.roles import Role
from tests.support.quorum_world.node import QuorumNode
from tests.support.quorum_world.plan import QuorumPlan
from tests.support.quorum_world.world import QuorumWorld, simulated

FOREVER_US = 10**15
STAND_MS = 4000
NEVER_MS = 10**9


class StoryError(AssertionError):
    """A story does not go as told."""


class ToldWorld(QuorumWorld):
    """A quorum that writes down who takes which role.

    Attributes:
        story: what was not told yet, a line each; virtual milliseconds first.
    """

    def __init__(self, plan: QuorumPlan) -> None:
        super().__init__(plan)
        self.story: list[str] = []

    def tell(self, text: str) -> None:
        self.story.append(f"{self.now_us // 1000:>7} {text}")

    def note(self, node: QuorumNode, event: Event, effects: list[Effect]) -> None:
        super().note(node, event, effects)
        for effect in effects:
            if isinstance(effect, RoleChanged):
                leader = "" if effect.leader_id is None else f", leader {effect.leader_id}"
                if effect.role is Role.LEADER:
                    leader = f" from offset {effect.epoch_start_offset}"
                self.tell(f"{node} {effect.role.value} in epoch {effect.epoch}{leader}")


class Teller:
    """Carries out a story's commands."""

    def __init__(self) -> None:
        self._world: ToldWorld | None = None

    @property
    def world(self) -> ToldWorld:
        """The quorum that the story is about."""
        assert self._world is not None, "a story begins with `cluster`"
        return self._world

    def tell(self, text: str) -> str:
        """Carry out a story's commands; the story with what came of each now."""
        lines: list[str] = []
        with simulated():
            for line in text.splitlines():
                if line.startswith("> "):
                    lines += [line, *self._carry_out(line[2:].split())]
                elif line.startswith("#") or not line.strip():
                    lines.append(line)
        return "\n".join(lines).rstrip() + "\n"

    def _carry_out(self, words: list[str]) -> list[str]:
        name = words[0].replace("-", "_")
        command: Callable[..., list[str] | None] = getattr(self, f"do_{name}")
        out = command(*words[1:]) or []
        world = self.world
        told, world.story = world.story, []
        return [*told, *out]

    def _nodes(self, text: str) -> list[QuorumNode]:
        world = self.world
        if text == "all":
            return list(world.nodes.values())
        if text in ("leader", "others"):
            leader = self._leader()
            return [node for node in world.nodes.values() if (node is leader) == (text == "leader")]
        return [world.nodes[int(part)] for part in text.split(",")]

    def _node(self, text: str) -> QuorumNode:
        return self._nodes(text)[0]

    def _leader(self) -> QuorumNode:
        led = [node for node in self.world.nodes.values() if node.leads]
        if not led:
            raise StoryError(f"nobody leads: {self.world.states}")
        return max(led, key=lambda node: node.core.epoch)

    # Commands

    def do_cluster(self, *settings: str) -> None:
        values: dict[str, Any] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            number = {"True": True, "False": False}.get(value, value)
            values[name] = number if isinstance(number, bool) else int(value)
        voters = values.pop("voters", 3)
        observers = values.pop("observers", 0)
        plan = QuorumPlan(
            voters=tuple(range(1, voters + 1)),
            observers=tuple(range(101, 101 + observers)),
            linger_ms=0,
            idle_ms=NEVER_MS,
            **values,
        )
        self._world = ToldWorld(plan)
        self._world.start()
        self._world.run_for(1)

    def do_elect(self) -> None:
        if not self.world.run_until(lambda: self.world.leader is not None):
            raise StoryError(f"no leader: {self.world.states}")

    def do_run(self, ms: str) -> None:
        self.world.run_for(int(ms))

    def do_until_log(self, node: str, end: str) -> None:
        one = self._node(node)
        if not self.world.run_until(lambda: one.disk.end_offset >= int(end), 10_000):
            raise StoryError(f"{self.world.state_of(one)}")

    def do_until_role(self, node: str, role: str) -> None:
        one = self._node(node)
        if not self.world.run_until(lambda: one.up and one.core.role.value == role):
            raise StoryError(f"{self.world.state_of(one)}")

    def do_propose(self, node: str, count: str) -> list[str]:
        one, records = self._node(node), (make("NoOpRecord"),) * int(count)
        assert one.replica is not None
        end, answers = one.disk.end_offset, list[Outcome[None]]()

        def decide(_image: MetadataImage) -> ControllerResult[None]:
            return ControllerResult(records, None)

        one.replica.submit(decide, answers.append, timeout_ms=NEVER_MS)
        self.world.run_for(1)
        done = one.disk.end_offset > end and not answers
        return [f"        {one}: {'appended up to ' + str(one.disk.end_offset) if done else 'no'}"]

    def do_stand(self, nodes: str) -> None:
        world = self.world
        for node in self._nodes(nodes):
            node.clock.offset_ms += STAND_MS
            assert node.replica is not None
            world.at_node(world.now_us, node, node.replica.driver._tick)
        world.run_for(0)

    def do_cut(self, ones: str, others: str) -> None:
        self.do_one_way(ones, others)
        self.do_one_way(others, ones)

    def do_one_way(self, ones: str, others: str) -> None:
        for one in self._nodes(ones):
            for other in self._nodes(others):
                if one is not other:
                    self.world.net.cut(one.id, other.id, FOREVER_US)

    def do_heal(self) -> None:
        self.world.net.cuts.clear()

    def do_crash(self, nodes: str) -> None:
        for node in self._nodes(nodes):
            node.crash()

    def do_start(self, nodes: str) -> None:
        for node in self._nodes(nodes):
            node.start()

    def do_close(self, nodes: str) -> None:
        for node in self._nodes(nodes):
            node.close()

    def do_wipe(self, nodes: str) -> None:
        for node in self._nodes(nodes):
            self.world.lose_disk(node)

    def do_snapshot(self, nodes: str) -> list[str]:
        """Make one each; the log's start rises to it as retention has it."""
        told = []
        for node in self._nodes(nodes):
            assert node.replica is not None
            made = list[Any]()
            node.replica.snapshot(made.append)
            if not self.world.run_until(lambda made=made: bool(made), 10_000):
                raise StoryError(f"no snapshot: {self.world.state_of(node)}")
            newest = node.disk.snapshots()[-1]
            told.append(f"        {node}: {newest.end_offset}-{newest.epoch}")
        return told

    def do_logs(self) -> list[str]:
        return [f"        {log_of(node)}" for node in self.world.nodes.values()]

    def do_states(self) -> list[str]:
        return [f"        {self.world.state_of(node)}" for node in self.world.nodes.values()]

    def do_expect(self, what: str, *words: str) -> None:
        world = self.world
        match what, *words:
            case "leader", node:
                holds = world.leader is self._node(node)
            case ["no-leader"]:
                holds = not any(node.leads for node in world.nodes.values())
            case ["equal"]:
                holds = world.all_equal()
            case "committed", end:
                holds = world.oracle.high_watermark == int(end)
            case "epoch", node, epoch:
                holds = self._node(node).core.epoch == int(epoch)
            case "loading", node:
                holds = self._node(node).disk.parts() > 0
            case "role", node, role:
                holds = self._node(node).core.role.value == role
            case _:
                raise StoryError(f"nobody can expect {what} {words}")
        if not holds:
            raise StoryError(f"not so: {what} {' '.join(words)}; {world.states}")


def log_of(node: QuorumNode) -> str:
    """A log's epochs with their offsets."""
    disk = node.disk
    parts = [
        f"{list(batches)[-1].facts.end_offset} of epoch {epoch}"
        for epoch, batches in groupby(disk.batches, key=lambda batch: batch.facts.epoch)
    ]
    snapshots = " ".join(f"snapshot {one.end_offset}-{one.epoch}" for one in disk.snapshots())
    known = node.core.high_watermark if node.up else "?"
    words = [f"{node}", f"from {disk.start_offset}", *(f"to {part}" for part in parts), snapshots]
    return ", ".join(word for word in words if word) + f"; committed {known}"
