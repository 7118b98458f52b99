"""Bring a controller of Kafka into a role and hold it there.

Its timeouts are an hour long, so nothing happens by itself; the other voters answer as the role
needs it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.raft_answers.controller import Controller, wait_for
from tests.support.raft_answers.directories import read_log, write_quorum_state
from tests.support.raft_answers.facts import ASKED, Facts
from tests.support.raft_answers.other_voters import Manner, OtherVoter

HOUR_MS = 3_600_000


@dataclass
class Stage:
    """One controller and the other voters."""

    controller: Controller
    others: dict[int, OtherVoter]
    manner: Manner
    is_dynamic: bool
    ports: dict[int, int] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        log = read_log(self.controller.logs)
        return Facts(self.controller.epoch, log, self.is_dynamic, self.ports)

    def let(self, manner: Manner) -> None:
        """Let the others answer otherwise; what waits is asked again."""
        for one in self.others.values():
            one.fetched.clear()
            one.hang_up()
        self.manner.pre_vote = manner.pre_vote
        self.manner.vote = manner.vote
        self.manner.fetch_epoch = manner.fetch_epoch

    async def ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        return await self.controller.ask(api, version, fields)

    async def describe(self) -> Any:
        partitions = [{"partition_index": 0}]
        topics = [{"topic_name": "__cluster_metadata", "partitions": partitions}]
        answer = await self.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics})
        return answer.topics[0].partitions[0]


async def unattached(stage: Stage) -> None:
    """Heard of a higher epoch from a candidate whose log is behind."""
    stage.let(Manner())
    facts = stage.facts
    body = facts.vote(epoch=1, last_offset_epoch=0, last_offset=0)
    if facts.end == 0:
        body = facts.vote(epoch=1, last_offset_epoch=0, last_offset=0, pre_vote=True)
    await stage.ask(ApiKey.VOTE, 2, body)
    await stage.controller.until("unattached", facts.epoch + 1)


async def unattached_voted(stage: Stage) -> None:
    """Voted for 2."""
    stage.let(Manner())
    facts = stage.facts
    await stage.ask(ApiKey.VOTE, 2, facts.vote(epoch=1))
    await stage.controller.until("unattached", facts.epoch + 1)


async def follower(stage: Stage, *, is_answered: bool = False) -> None:
    """Has fetched nothing from leader 2 yet."""
    facts = stage.facts
    epoch = facts.epoch + 1
    stage.let(Manner(fetch_epoch=epoch if is_answered else -1))
    await stage.ask(ApiKey.BEGIN_QUORUM_EPOCH, 1, facts.begin(epoch=1))
    await stage.controller.until("follower", epoch)


async def follower_fetched(stage: Stage) -> None:
    """Has fetched from leader 2."""
    await follower(stage, is_answered=True)
    epoch = stage.controller.epoch

    def has_asked_again() -> bool:
        return sum(one["epoch"] == epoch for one in stage.others[2].fetched) > 1

    await wait_for(has_asked_again, "a second Fetch")


async def follower_of_resigned(stage: Stage) -> None:
    """Has fetched from leader 2, which then sent EndQuorumEpoch; not the first successor."""
    await follower_fetched(stage)
    body = stage.facts.end_epoch(successors=(3, 1))
    await stage.ask(ApiKey.END_QUORUM_EPOCH, 1, body)


async def prospective(stage: Stage) -> None:
    """First successor of leader 2."""
    await follower(stage)
    body = stage.facts.end_epoch(successors=(1, 3))
    await stage.ask(ApiKey.END_QUORUM_EPOCH, 1, body)
    await stage.controller.until("prospective")


async def candidate(stage: Stage) -> None:
    """Both others said yes to the pre-vote and nothing to the vote."""
    await prospective(stage)
    stage.let(Manner(pre_vote=True))
    await stage.controller.until("candidate")
    stage.manner.pre_vote = None


async def leader(stage: Stage) -> None:
    """Elected by both others, of which none has fetched."""
    await prospective(stage)
    stage.let(Manner(pre_vote=True, vote=True))
    await stage.controller.until("leader")
    await wait_for(lambda: stage.facts.last_epoch == stage.facts.epoch, "the epoch's start")
    stage.manner.pre_vote = stage.manner.vote = None


async def leader_committed(stage: Stage) -> None:
    """Voter 2 has all of the log."""
    await leader(stage)
    quiet = 0
    while quiet < 10:
        facts = stage.facts
        body = facts.fetch(facts.end, facts.last_epoch, replica=2)
        await stage.ask(ApiKey.FETCH, 17, body)
        await asyncio.sleep(0.05)
        settled = (await stage.describe()).high_watermark == stage.facts.end == facts.end
        quiet = quiet + 1 if settled else 0


async def prospective_alone(stage: Stage) -> None:
    """Waited in vain for a leader of its epoch; for election timeouts of seconds."""
    await unattached(stage)
    await stage.controller.until("prospective", stage.controller.epoch)


async def resigned(stage: Stage) -> None:
    """Began with a quorum-state that has this controller as the leader."""
    controller = stage.controller
    epoch = controller.epoch + 1
    await controller.kill()
    write_quorum_state(
        controller.logs, {"leaderEpoch": epoch, "leaderId": ASKED}, is_dynamic=stage.is_dynamic
    )
    await controller.start()
    await controller.until("resigned", epoch)


async def only_voter(stage: Stage) -> None:
    """Leads after a start, and again after whatever took it away."""
    controller = stage.controller
    if controller.role != "leader":
        await controller.kill()
        await controller.start()
    await controller.until("leader")
    quiet, before = 0, -1
    while quiet < 10:
        await asyncio.sleep(0.05)
        end = stage.facts.end
        settled = (await stage.describe()).high_watermark == end == before
        quiet, before = (quiet + 1 if settled else 0), end


ROLES: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "unattached": unattached,
    "unattached, voted for 2": unattached_voted,
    "follower, nothing fetched": follower,
    "follower, fetched": follower_fetched,
    "follower, leader resigned": follower_of_resigned,
    "prospective": prospective,
    "candidate": candidate,
    "leader, nothing committed": leader,
    "leader": leader_committed,
    "prospective, no leader known": prospective_alone,
    "resigned": resigned,
    "the only voter": only_voter,
}
HELD = list(ROLES)[:-3]
"""Roles that last as long as the recorder likes and are reached by messages alone."""


def settings(
    place: Path,
    ports: dict[int, int],
    *,
    is_dynamic: bool,
    voters: tuple[int, ...] = (1, 2, 3),
    election_timeout_ms: int = HOUR_MS,
) -> dict[str, str]:
    """The server.properties of the asked controller."""
    base = {
        "process.roles": "controller",
        "node.id": str(ASKED),
        "listeners": f"CONTROLLER://127.0.0.1:{ports[ASKED]}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(place / "logs"),
        "metadata.max.idle.interval.ms": "0",
        "controller.quorum.election.timeout.ms": str(election_timeout_ms),
        "controller.quorum.fetch.timeout.ms": str(HOUR_MS),
        "controller.quorum.election.backoff.max.ms": str(HOUR_MS),
        "controller.quorum.request.timeout.ms": "20000",
    }
    if is_dynamic:
        base["controller.quorum.bootstrap.servers"] = ",".join(
            f"127.0.0.1:{ports[voter]}" for voter in (2, 3)
        )
    else:
        base["controller.quorum.voters"] = ",".join(
            f"{voter}@127.0.0.1:{ports[voter]}" for voter in voters
        )
    return base
