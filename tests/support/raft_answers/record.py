"""Ask Apache Kafka's controllers and write down what they answer.

    python -m tests.support.raft_answers.record [WORLD ...]

writes `tests/golden/raft/<world>.jsonl`, see the README there.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.quorum.log.batches import whole_batches
from tests.support.brokers.process import free_ports
from tests.support.brokers.raw_client import build
from tests.support.raft_answers import questions, stage
from tests.support.raft_answers.controller import Controller
from tests.support.raft_answers.directories import (
    CUT,
    LONG,
    Content,
    fill,
    format_with_kafka,
    write_quorum_state,
)
from tests.support.raft_answers.facts import ASKED, OTHER_DIRECTORY, directory_of
from tests.support.raft_answers.other_voters import Manner, OtherVoter
from tests.support.raft_answers.questions import Question
from tests.support.raft_answers.stage import HOUR_MS, ROLES, Stage
from tests.support.samples.golden_files import GOLDEN
from tests.support.samples.protocol_golden import kafka_json

FOLDER = GOLDEN / "raft"
FIRST_EPOCH = 9
Row = dict[str, Any]
_TIMES = ("lastFetchTimestamp", "lastCaughtUpTimestamp")


class Recorder:
    """Asks in one world."""

    def __init__(self, world: str, scene: Stage) -> None:
        self.world = world
        self.scene = scene
        self.rows: list[Row] = []

    async def ask_all(self, role: str, asked: Iterable[Question]) -> None:
        """Ask each question in the role; come back to the role where one led away from it."""
        held: Any = None
        for question in asked:
            if held is None or self._state() != held:
                await ROLES[role](self.scene)
                held = self._state()
            await self._ask(role, question)
        print(f"{self.world}: {role}, {len(self.rows)} rows", flush=True)

    def _state(self) -> Any:
        controller = self.scene.controller
        return (controller.transitions[-1], controller.quorum_state)

    async def _ask(self, role: str, question: Question) -> None:
        scene = self.scene
        controller = scene.controller
        facts = scene.facts
        before = controller.quorum_state
        state = await self._described(controller.role)
        message = codec.request(question.api)
        body = question.make(facts)
        answer = await scene.ask(question.api, question.version, body)
        # A successor stands a moment after its answer.
        patience_s = 0.3 if question.api == ApiKey.END_QUORUM_EPOCH else 0.02
        died = await controller.died(10 if answer is None else patience_s)
        after = scene.facts
        row = {
            "world": self.world,
            "role": role,
            "question": question.name,
            "epoch": facts.epoch,
            "log": {
                "start": facts.log.start,
                "end": facts.log.end,
                "epochs": facts.log.epochs,
                "snapshots": facts.log.snapshots,
                "last_epoch": facts.log.last_epoch,
            },
            "state": state,
            "before": before,
            "api": ApiKey(question.api).name,
            "version": question.version,
            "request": kafka_json(message, build(message.cls, body), question.version),
            "response": _response(question, answer),
            "after": controller.quorum_state,
            "role_after": controller.role,
            "epoch_after": controller.epoch,
            "end_after": after.log.end,
        }
        if died is not None:
            row["died"] = died
            await controller.start()
        self.rows.append(_same_each_time(row, {v: k for k, v in scene.ports.items()}))

    async def _described(self, controller_role: str) -> dict[str, Any]:
        """What a leader knows of the others; Kafka's DescribeQuorum says it."""
        if controller_role != "leader":
            return {}
        described = await self.scene.describe()
        ends = {voter.replica_id: voter.log_end_offset for voter in described.current_voters}
        return {"high_watermark": described.high_watermark, "voter_ends": ends}


def _response(question: Question, answer: Any) -> dict[str, Any] | None:
    if answer is None:
        return None
    fields = kafka_json(codec.response(question.api), answer, question.version)
    if question.api == ApiKey.FETCH and answer.responses:
        records = answer.responses[0].partitions[0].records
        if records:
            fields["batches"] = [
                [header.base_offset, header.next_offset, header.partition_leader_epoch]
                for _, header in whole_batches(records)
            ]
    return fields


def _same_each_time(value: Any, nodes: dict[int, int]) -> Any:
    """Take out what differs from run to run: ports become 9090 + id, times 1."""
    if isinstance(value, list):
        return [_same_each_time(one, nodes) for one in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for name, one in value.items():
        if name == "port" and one in nodes:
            made[name] = 9090 + nodes[one]
        elif name in _TIMES:
            made[name] = min(one, 1)
        else:
            made[name] = _same_each_time(one, nodes)
    return made


@asynccontextmanager
async def static_world(
    content: Content, voters: tuple[int, ...] = (1, 2, 3), election_timeout_ms: int = HOUR_MS
) -> AsyncIterator[Stage]:
    """A controller with static voters and a log."""
    async with prepared_world(
        is_dynamic=False, voters=voters, election_timeout_ms=election_timeout_ms
    ) as scene:
        controller = scene.controller
        format_with_kafka(controller.config)
        fill(controller.logs, content, voters)
        fields = {"leaderEpoch": FIRST_EPOCH}
        write_quorum_state(controller.logs, fields, is_dynamic=False, voters=voters)
        await controller.start()
        yield scene


@asynccontextmanager
async def dynamic_world(own_directory: bytes) -> AsyncIterator[Stage]:
    """A controller of a quorum that the format step made; outside it with another directory."""
    async with prepared_world(is_dynamic=True) as scene:
        voters = ",".join(
            f"{voter}@127.0.0.1:{port}:{uuid_to_text(directory_of(voter))}"
            for voter, port in scene.ports.items()
        )
        format_with_kafka(scene.controller.config, "--initial-controllers", voters)
        if own_directory != directory_of(ASKED):
            meta = scene.controller.logs / "meta.properties"
            text = meta.read_text()
            old, new = uuid_to_text(directory_of(ASKED)), uuid_to_text(own_directory)
            assert old in text
            meta.write_text(text.replace(old, new))
        await scene.controller.start()
        yield scene


@asynccontextmanager
async def prepared_world(
    *,
    is_dynamic: bool,
    voters: tuple[int, ...] = (1, 2, 3),
    election_timeout_ms: int = HOUR_MS,
) -> AsyncIterator[Stage]:
    """A controller with its properties and the others; neither formatted nor started."""
    manner = Manner()
    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    others = {voter: OtherVoter(voter, manner) for voter in (2, 3)}
    with tempfile.TemporaryDirectory(prefix="raft-answers-") as folder:
        place = Path(folder)
        lines = stage.settings(
            place,
            ports,
            is_dynamic=is_dynamic,
            voters=voters,
            election_timeout_ms=election_timeout_ms,
        )
        controller = Controller(place, ports[ASKED], lines)
        for voter, other in others.items():
            await other.start(ports[voter])
        try:
            yield Stage(controller, others, manner, is_dynamic, ports)
        finally:
            await controller.kill()
            for other in others.values():
                await other.stop()


async def record_static() -> list[Row]:
    """Three static voters."""
    async with static_world(LONG) as scene:
        recorder = Recorder("static", scene)
        for role in stage.HELD[:-2]:
            await recorder.ask_all(role, questions.everywhere())
        await recorder.ask_all("unattached", questions.bad_votes())
        return recorder.rows


async def record_leader() -> list[Row]:
    """Three static voters; the leader."""
    async with static_world(LONG) as scene:
        recorder = Recorder("leader", scene)
        for role in stage.HELD[-2:]:
            await recorder.ask_all(role, questions.everywhere())
        await recorder.ask_all("leader", questions.fetched_offsets())
        return recorder.rows


async def record_restarted() -> list[Row]:
    """Three static voters; a start for every time that the role is left."""
    async with static_world(LONG) as scene:
        recorder = Recorder("restarted", scene)
        await recorder.ask_all("resigned", questions.everywhere())
        return recorder.rows


async def record_impatient() -> list[Row]:
    """Three static voters with a short election timeout."""
    async with static_world(LONG, election_timeout_ms=1500) as scene:
        recorder = Recorder("impatient", scene)
        asked = [*questions.votes(), *questions.begins()]
        await recorder.ask_all("prospective, no leader known", asked)
        return recorder.rows


async def record_snapshots() -> list[Row]:
    """A leader whose log begins behind a snapshot, with another one in the middle."""
    async with static_world(CUT) as scene:
        recorder = Recorder("snapshots", scene)
        for role in ("leader, nothing committed", "leader"):
            asked = [*questions.fetches(), *questions.snapshots()]
            await recorder.ask_all(role, [*asked, *questions.fetched_offsets()])
        asked = [q for q in questions.votes() if q.version == 2]
        await recorder.ask_all("unattached", [*asked, *questions.snapshots()])
        return recorder.rows


async def record_sole() -> list[Row]:
    """The only voter."""
    async with static_world(LONG, (1,)) as scene:
        recorder = Recorder("sole", scene)
        await recorder.ask_all("the only voter", questions.everywhere())
        return recorder.rows


async def record_dynamic() -> list[Row]:
    """Three voters with directory ids; nothing in the log but what they write."""
    async with dynamic_world(directory_of(ASKED)) as scene:
        recorder = Recorder("dynamic", scene)
        for role in ("follower, nothing fetched", "unattached, voted for 2", *stage.HELD[3:-2]):
            await recorder.ask_all(role, questions.everywhere())
        return recorder.rows


async def record_dynamic_leader() -> list[Row]:
    """Three voters with directory ids; the leader."""
    async with dynamic_world(directory_of(ASKED)) as scene:
        recorder = Recorder("dynamic-leader", scene)
        await recorder.ask_all("leader", questions.everywhere())
        return recorder.rows


async def record_outside() -> list[Row]:
    """A controller with the id of a voter and another directory."""
    async with dynamic_world(OTHER_DIRECTORY) as scene:
        recorder = Recorder("outside", scene)
        for role in ("follower, nothing fetched", "follower, fetched", "unattached, voted for 2"):
            await recorder.ask_all(role, questions.everywhere())
        return recorder.rows


WORLDS = {
    "static": record_static,
    "leader": record_leader,
    "snapshots": record_snapshots,
    "dynamic": record_dynamic,
    "dynamic-leader": record_dynamic_leader,
    "outside": record_outside,
    "sole": record_sole,
    "impatient": record_impatient,
    "restarted": record_restarted,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for world in sys.argv[1:] or WORLDS:
        rows = asyncio.run(WORLDS[world]())
        lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
        (FOLDER / f"{world}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
