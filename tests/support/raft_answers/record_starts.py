"""Start a controller of Kafka with every kind of quorum-state and write down what it became.

    python -m tests.support.raft_answers.record_starts

writes `tests/golden/raft/starts.jsonl`.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.quorum.driver.quorum_state_file import QUORUM_STATE
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from tests.support.raft_answers.directories import (
    CUT,
    LONG,
    Content,
    fill,
    format_with_kafka,
    read_log,
    write_quorum_state,
)
from tests.support.raft_answers.facts import OTHER_DIRECTORY, directory_of
from tests.support.raft_answers.record import FOLDER, prepared_world
from tests.support.raft_answers.stage import Stage

THREE = (1, 2, 3)


@dataclass(frozen=True)
class Start:
    """One start.

    Attributes:
        state: fields of quorum-state that differ from those of epoch 0, text to write as it is,
            or None for no file.
        voters: static ones; none: the three of the format step.
    """

    name: str
    state: dict[str, Any] | str | None
    voters: tuple[int, ...] = THREE
    content: Content = LONG


def _epoch(epoch: int, **more: Any) -> dict[str, Any]:
    return {"leaderEpoch": epoch, **more}


def _voted(directory: bytes, voted: int = 2) -> dict[str, Any]:
    return {"leaderEpoch": 9, "votedId": voted, "votedDirectoryId": uuid_to_text(directory)}


STARTS = (
    Start("nothing at all", None, content=Content()),
    Start("epoch alone", _epoch(9)),
    Start("voted for 2", _epoch(9, votedId=2)),
    Start("voted for itself", _epoch(9, votedId=1)),
    Start("led", _epoch(9, leaderId=1)),
    Start("led, voted for itself", _epoch(9, leaderId=1, votedId=1)),
    Start("follows 2", _epoch(9, leaderId=2)),
    Start("follows 2, voted for 3", _epoch(9, leaderId=2, votedId=3)),
    Start("older than the log", _epoch(3)),
    Start("older than the log, voted for 2", _epoch(3, votedId=2)),
    Start("older than the log, led", _epoch(3, leaderId=1)),
    Start("older than the newest snapshot", _epoch(3), content=CUT),
    Start("missing", None),
    Start("missing, with snapshots", None, content=CUT),
    Start("empty", ""),
    Start("nonsense", "nonsense"),
    Start("only voter, nothing at all", None, (1,), Content()),
    Start("only voter, missing", None, (1,)),
    Start("only voter, epoch alone", _epoch(9), (1,)),
    Start("only voter, led", _epoch(9, leaderId=1), (1,)),
    Start("only voter, voted for itself", _epoch(9, votedId=1), (1,)),
    Start("directories, nothing at all", None, (), Content()),
    Start("directories, voted for 2", _voted(directory_of(2)), (), Content()),
    Start("directories, voted for 2 without one", _voted(bytes(16)), (), Content()),
    Start("directories, voted for itself", _voted(directory_of(1), 1), (), Content()),
    Start("directories, voted for another 1", _voted(OTHER_DIRECTORY, 1), (), Content()),
    Start("directories, follows 2", _epoch(9, leaderId=2), (), Content()),
    Start("directories, follows 9", _epoch(9, leaderId=9), (), Content()),
)


def prepare(scene: Stage, start: Start) -> None:
    """Write what the controller begins with."""
    logs, is_dynamic = scene.controller.logs, not start.voters
    if is_dynamic:
        voters = ",".join(
            f"{voter}@127.0.0.1:{port}:{uuid_to_text(directory_of(voter))}"
            for voter, port in scene.ports.items()
        )
        format_with_kafka(scene.controller.config, "--initial-controllers", voters)
    else:
        format_with_kafka(scene.controller.config)
    fill(logs, start.content, start.voters)
    if isinstance(start.state, str):
        (logs / METADATA_DIRECTORY / QUORUM_STATE).write_text(start.state)
    elif start.state is not None:
        write_quorum_state(logs, start.state, is_dynamic=is_dynamic, voters=start.voters or THREE)


async def record(start: Start) -> dict[str, Any]:
    """Start once."""
    async with prepared_world(is_dynamic=not start.voters, voters=start.voters or THREE) as scene:
        controller = scene.controller
        prepare(scene, start)
        log = read_log(controller.logs)
        row: dict[str, Any] = {
            "start": start.name,
            "voters": start.voters,
            "state": start.state,
            "log": {
                "start": log.start,
                "end": log.end,
                "epochs": log.epochs,
                "snapshots": log.snapshots,
                "last_epoch": log.last_epoch,
            },
            "died": None,
        }
        try:
            await controller.start()
            await asyncio.sleep(0.3)
            row["after"] = controller.quorum_state
        except AssertionError:
            row["died"] = await controller.died(1)
        row["roles"] = [[role, epoch] for role, epoch, _ in controller.transitions]
        return row


def main() -> None:
    rows = []
    for start in STARTS:
        rows.append(asyncio.run(record(start)))
        print(rows[-1]["start"], rows[-1]["roles"], rows[-1]["died"], flush=True)
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    (FOLDER / "starts.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
