"""Sees each step of a node's core: what the oracle validates, and where the process may end."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from metadata_topic.raft import effects as fx
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import Effect
from metadata_topic.raft.events import (
    Event,
    Flushed,
    SnapshotInstalled,
    SnapshotRefused,
    Truncated,
)
from tests.support.quorum_world.errors import Violation
from tests.support.sim.memory_disk import ProcessEnded

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode


def watch(node: "QuorumNode", core: RaftCore) -> None:
    """Let the oracle see every step of a core from now on."""
    step = core.step

    def watched(event: Event, now_ms: int) -> Any:
        named = node.world.oracle.named_leader(node, event)
        effects = step(event, now_ms)
        node.has_stepped = True
        try:
            _saw(node, event, effects)
            node.world.oracle.follows(node, named, effects)
        except Violation as error:
            node.world.breaks_by(error)
            raise
        return _one_by_one(node, effects)

    core.step = watched  # type: ignore[method-assign]


def _one_by_one(node: "QuorumNode", effects: list[Effect]) -> Iterator[Effect]:
    """Hand effects to the driver, each once those before it are carried out."""
    for place, effect in enumerate(effects):
        if node.crash_after is not None and place >= node.crash_after:
            node.world.tell(f"{node} crashes before effect {place}")
            assert node.process is not None
            node.process.disk.end()  # also where a task of its event loop swallows this
            raise ProcessEnded
        if isinstance(effect, fx.AdvanceHighWatermark | fx.RoleChanged):
            try:
                node.world.oracle.takes_effect(node, effect)
            except Violation as error:
                node.world.breaks_by(error)
                raise
        yield effect


def _saw(node: "QuorumNode", event: Event, effects: list[Effect]) -> None:
    node.world.note(node, event, effects)
    node.world.oracle.sees(node, event, effects)
    match event:
        case Flushed():
            node.is_flushing = False
        case Truncated():
            node.truncating = None
        case SnapshotInstalled() | SnapshotRefused():
            node.installing = None
        case _:
            pass
    for effect in effects:
        _comes(node, effect)


def _comes(node: "QuorumNode", effect: Effect) -> None:
    oracle = node.world.oracle
    match effect:
        case fx.Persist():
            oracle.persists(node, effect)
        case fx.AppendEpochStart() | fx.AppendVoters():
            _changes_log_alone(node, effect)
            oracle.voters.appends(node, effect)
        case fx.AwaitAppend():
            oracle.voters.wants_turn(node)
        case fx.Append():
            _changes_log_alone(node, effect)
        case fx.FlushLog():
            if node.is_flushing:
                raise Violation("one flush at a time", f"{node}")
            node.is_flushing = True
        case fx.TruncateLog():
            _changes_log_alone(node, effect)
            oracle.looks_at_disk(node)
            oracle.truncates(node, effect.end_offset)
            node.truncating = effect.end_offset
        case fx.InstallSnapshot():
            _changes_log_alone(node, effect)
            oracle.looks_at_disk(node)
            oracle.replaces_log(node, effect.snapshot_id)
            node.installing = effect
        case fx.Report():
            oracle.reports(node, effect)
        case fx.Fatal(reason):
            raise Violation("no node gives up", f"{node}: {reason}")
        case _:
            pass


def _changes_log_alone(node: "QuorumNode", effect: Effect) -> None:
    if node.truncating is not None or node.installing is not None:
        raise Violation("one change of the log at a time", f"{node}: {effect}")
