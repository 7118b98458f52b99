"""Stories of a simulated quorum: a text with commands and what came of each, told again exactly.

A line that begins with `#` is for the reader, one with `> ` is a command; what follows is its
output. Times are virtual milliseconds. Messages take 0.5 ms, disks 0.5 ms, clocks agree; the oracle
looks at every step. `NODES` is ids with commas, or `all`, `leader`, `others` (than the leader).

    cluster voters=3 observers=0 dynamic=True ...   any field of Plan; the nodes start
    elect                     until a leader has committed something
    run MS                    let time pass
    until-log NODE END        until a node's log ends there or later, 10 s at most
    until-role NODE ROLE      until a node has that role, 60 s at most
    propose NODE COUNT        a batch of so many records at a leader
    stand NODES               their clocks jump beyond every election and fetch timeout
    cut NODES NODES           nothing goes from the first to the second, nor back
    one-way NODES NODES       nothing goes from the first to the second
    heal                      no cut is left
    crash, start, close, resign, wipe, snapshot, raise-log-start NODES
    logs, states              print them
    expect leader NODE | no-leader | equal | committed END | epoch NODE EPOCH | role NODE ROLE
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

from metadata_topic.raft.events import Closing, Resign, Tick
from tests.support.raft.plan import Plan
from tests.support.raft.sim_node import SimNode
from tests.support.raft.world import World

FOREVER_US = 10**15
STAND_MS = 4000


class StoryError(AssertionError):
    """A story does not go as told."""


class Teller:
    """Carries out a story's commands."""

    def __init__(self) -> None:
        self._world: World | None = None

    @property
    def world(self) -> World:
        """The quorum that the story is about."""
        assert self._world is not None, "a story begins with `cluster`"
        return self._world

    def tell(self, text: str) -> str:
        """Carry out a story's commands; the story with what came of each now."""
        lines: list[str] = []
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
        assert world.story is not None
        told, world.story = world.story, []
        return [*told, *out]

    def _nodes(self, text: str) -> list[SimNode]:
        world = self.world
        if text == "all":
            return list(world.nodes.values())
        if text in ("leader", "others"):
            leader = self._leader()
            return [node for node in world.nodes.values() if (node is leader) == (text == "leader")]
        return [world.nodes[int(part)] for part in text.split(",")]

    def _node(self, text: str) -> SimNode:
        return self._nodes(text)[0]

    def _leader(self) -> SimNode:
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
        plan = replace(
            Plan(),
            voters=tuple(range(1, voters + 1)),
            observers=tuple(range(101, 101 + observers)),
            **values,
        )
        self._world = World(plan)
        self._world.story = []
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
        one = self._node(node)
        done = self.world.propose(one, (int(count),))
        return [f"        {one}: {'appended up to ' + str(one.disk.end_offset) if done else 'no'}"]

    def do_stand(self, nodes: str) -> None:
        chosen = self._nodes(nodes)
        for node in chosen:
            node.clock_offset_ms += STAND_MS
        for node in chosen:
            node.step(Tick(self.world.core_dice.random()))

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
            node.restarts_after_close = False
            node.step(Closing(self.world.core_dice.random()))

    def do_resign(self, nodes: str) -> None:
        for node in self._nodes(nodes):
            node.step(Resign(self.world.core_dice.random()))

    def do_wipe(self, nodes: str) -> None:
        for node in self._nodes(nodes):
            self.world.lose_disk(node)

    def do_snapshot(self, nodes: str) -> list[str]:
        return [
            f"        {node}: {made.end_offset}-{made.epoch}" if made else f"        {node}: none"
            for node in self._nodes(nodes)
            for made in [self.world.write_snapshot(node)]
        ]

    def do_raise_log_start(self, nodes: str) -> list[str]:
        for node in self._nodes(nodes):
            self.world.raise_log_start(node)
        return [f"        {node}: {node.disk.start_offset}" for node in self._nodes(nodes)]

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
            case "role", node, role:
                holds = self._node(node).core.role.value == role
            case _:
                raise StoryError(f"nobody can expect {what} {words}")
        if not holds:
            raise StoryError(f"not so: {what} {' '.join(words)}; {world.states}")


def log_of(node: SimNode) -> str:
    """A log's epochs with their offsets."""
    disk = node.disk
    parts = [
        f"{list(batches)[-1].facts.end_offset} of epoch {epoch}"
        for epoch, batches in groupby(disk.batches, key=lambda batch: batch.facts.epoch)
    ]
    snapshots = " ".join(
        f"snapshot {one.end_offset}-{one.epoch}" for one in sorted(disk.snapshots) if one.end_offset
    )
    known = node.core.high_watermark if node.up else "?"
    words = [f"{node}", f"from {disk.start_offset}", *(f"to {part}" for part in parts), snapshots]
    return ", ".join(word for word in words if word) + f"; committed {known}"
