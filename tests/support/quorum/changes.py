"""Clients that change the metadata without a pause, at whoever is the active controller.

Topics are created, configured and deleted with the newest versions of the requests, on brokers
that the test registers and keeps alive. Some requests are wrong on purpose: they must be refused,
and leave nothing behind.
"""

import asyncio
from random import Random
from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.quorum.history import History, Outcome, Subject, TopicState
from tests.support.quorum.kept_brokers import BROKERS
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection
from tests.support.quorum.quorum import Quorum

ANSWER_MS = 3_000
PATIENCE_S = 4.0
PAUSE_S = 0.02
NOBODY_S = 0.1
OPEN_TOPICS = 12
UNKNOWN = frozenset({
    ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
"""Answers after which the change may be there, now or later."""
CONFIGS = {"retention.ms": range(1_000, 10**9), "max.message.bytes": range(10_000, 10**6)}


class Changes:
    """Some clients, each with topics of its own; `run` continues until it is cancelled.

    Attributes:
        history: of all of them.
        epoch: the highest of a leader that was asked for a change; -1 none.
    """

    def __init__(self, quorum: Quorum, seed: int, *, clients: int = 3) -> None:
        self.history = History()
        self._quorum = quorum
        self._may_go = asyncio.Event()
        self._may_go.set()
        self._idle = [asyncio.Event() for _ in range(clients)]
        self._seed = seed
        self.active = self.epoch = -1

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, idle in enumerate(self._idle):
                group.create_task(self._client(number, idle))

    async def rest(self) -> None:
        """Ask for nothing more until `go`; returns when no request is under way."""
        self._may_go.clear()
        await asyncio.gather(*(one.wait() for one in self._idle))

    def go(self) -> None:
        """Continue after a rest."""
        self._may_go.set()

    async def _client(self, number: int, idle: asyncio.Event) -> None:
        client = _Client(self, number, Random(f"{self._seed}-{number}"))
        while True:
            if not self._may_go.is_set():
                idle.set()
                await self._may_go.wait()
            idle.clear()
            if await client.change() is Outcome.UNKNOWN:
                self.active = -1
            await asyncio.sleep(PAUSE_S)

    async def _found(self) -> int:
        """Whoever leads in the highest epoch, once there is one; one that is cut off says it, too.

        Nothing is asked for meanwhile: each request that nobody answers is a topic whose state is
        unknown from then on.
        """
        while self.active < 0:
            claims = await self._quorum.claims()
            if claims:
                self.active = claims[0].node_id
                self.epoch = max(self.epoch, claims[0].epoch)
            else:
                await asyncio.sleep(NOBODY_S)
        return self.active

    async def ask(
        self, talks: dict[int, NodeConnection], api: ApiKey, fields: dict[str, Any]
    ) -> Any:
        """Ask the active controller; None where there is no answer."""
        active = await self._found()
        talk = talks.get(active)
        if talk is None:
            talk = talks[active] = self._quorum.talk(active)
        try:
            return await talk.ask(api, fields, timeout_s=PATIENCE_S)
        except NO_ANSWER:
            return None


class _Client:
    """One change after the other."""

    def __init__(self, changes: Changes, number: int, rng: Random) -> None:
        self._changes = changes
        self._history = changes.history
        self._number = number
        self._rng = rng
        self._talks: dict[int, NodeConnection] = {}
        self._open: list[Subject] = []
        self._made = 0

    async def change(self) -> Outcome:
        """Ask for one change, whatever comes next."""
        self._open = [one for one in self._open if one.is_settled and one.known]
        if not self._open or (len(self._open) < OPEN_TOPICS and self._rng.random() < 0.5):
            return await self._create()
        subject = self._rng.choice(self._open)
        deed = self._rng.choice((self._configure, self._configure, self._delete, self._refused))
        return await deed(subject)

    async def _create(self) -> Outcome:
        self._made += 1
        subject = self._history.subject(f"topic-{self._number}-{self._made}")
        count = self._rng.randint(1, 4)
        configs = {"retention.ms": str(self._rng.choice(CONFIGS["retention.ms"]))}
        answer = await self._ask(
            ApiKey.CREATE_TOPICS, topics=[_topic(subject.name, count, configs)]
        )
        one = answer.topics[0] if answer else None
        after = TopicState(one.topic_id if one else bytes(16), count, tuple(configs.items()))
        outcome = self._note("create", subject, one, after)
        if outcome is Outcome.ACKNOWLEDGED:
            self._open.append(subject)
        return outcome

    async def _delete(self, subject: Subject) -> Outcome:
        assert subject.known is not None
        topic = {"name": None, "topic_id": subject.known.topic_id}
        answer = await self._ask(ApiKey.DELETE_TOPICS, topics=[topic])
        return self._note("delete", subject, answer.responses[0] if answer else None, None)

    async def _configure(self, subject: Subject) -> Outcome:
        assert subject.known is not None
        name = self._rng.choice(list(CONFIGS))
        has = dict(subject.known.configs)
        value = str(self._rng.choice(CONFIGS[name]))
        told = None if name in has and self._rng.random() < 0.3 else value
        answer = await self._ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[_altered(subject.name, name, told)]
        )
        after = subject.known.with_config(name, told)
        return self._note("configure", subject, answer.responses[0] if answer else None, after)

    async def _refused(self, subject: Subject) -> Outcome:
        """A change that no controller may carry out."""
        wrong = self._rng.choice((self._taken, self._unheard, self._unreadable))
        return await wrong(subject)

    async def _taken(self, subject: Subject) -> Outcome:
        """The name of a topic that exists; with another number of partitions."""
        answer = await self._ask(ApiKey.CREATE_TOPICS, topics=[_topic(subject.name, 7, {})])
        return self._note_wrong("create twice", subject, answer.topics[0] if answer else None)

    async def _unheard(self, subject: Subject) -> Outcome:
        """More replicas than there are brokers."""
        self._made += 1
        other = self._history.subject(f"refused-{self._number}-{self._made}")
        topic = _topic(other.name, 1, {}) | {"replication_factor": len(BROKERS) + 1}
        answer = await self._ask(ApiKey.CREATE_TOPICS, topics=[topic])
        return self._note_wrong("create too wide", other, answer.topics[0] if answer else None)

    async def _unreadable(self, subject: Subject) -> Outcome:
        """A config that is no number."""
        wrong = _altered(subject.name, "max.message.bytes", "many")
        answer = await self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[wrong])
        return self._note_wrong("misconfigure", subject, answer.responses[0] if answer else None)

    async def _ask(self, api: ApiKey, **fields: Any) -> Any:
        limit = {} if api is ApiKey.INCREMENTAL_ALTER_CONFIGS else {"timeout_ms": ANSWER_MS}
        return await self._changes.ask(self._talks, api, fields | limit)

    def _note(self, what: str, subject: Subject, one: Any, after: TopicState | None) -> Outcome:
        outcome, said = _outcome(one)
        self._history.count(what, outcome, said)
        subject.note(what, outcome, after, said)
        return outcome

    def _note_wrong(self, what: str, subject: Subject, one: Any) -> Outcome:
        """An answer that does not say changes nothing here: the change can never be carried out."""
        outcome, said = _outcome(one)
        self._history.count(what, outcome, said)
        assert outcome is not Outcome.ACKNOWLEDGED, f"{what} of {subject.name} was acknowledged"
        return outcome


def _outcome(one: Any) -> tuple[Outcome, str]:
    """Of one answer, or of none; with the error's name."""
    if one is None:
        return Outcome.UNKNOWN, "NO_ANSWER"
    if one.error_code == ErrorCode.NONE:
        return Outcome.ACKNOWLEDGED, ""
    code = ErrorCode(one.error_code)
    return (Outcome.UNKNOWN if code in UNKNOWN else Outcome.REFUSED), code.name


def _topic(name: str, partitions: int, configs: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,  # more is refused: nobody copies in this version
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }


def _altered(topic: str, name: str, value: str | None) -> dict[str, Any]:
    operation = 0 if value is not None else 1
    configs = [{"name": name, "config_operation": operation, "value": value}]
    return {"resource_type": 2, "resource_name": topic, "configs": configs}
