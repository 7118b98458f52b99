"""A broker asks the active controller, wherever it is; what is not known is never success."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.describe_quorum import DescribeQuorumHandler
from broker.handlers.forwarded import NEXT_MS, RETRY_MS, Forwarded
from broker.network.dispatch import DECODED_AT_ONCE_BYTES
from broker.network.registry import DecodedHandler, RequestContext
from broker.node.active_controller import ENVELOPE_BYTES_MAX, ActiveController
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS, DecisionTimedOut
from metadata_topic.quorum.node import MetadataUnavailable
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.messages import Node
from runtime.executors import InlinePool, Pool
from runtime.ports import system_ports
from tests.support.brokers.process import free_ports
from tests.support.kafka_client.node import Serve, framed, serving
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.waiting import until

ME, OTHER = 1, 2
VERSION = 7
END = 71
GUARDED = "__remote_log_metadata"
APIS = {
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.ENVELOPE: (0, 0),
    ApiKey.BROKER_HEARTBEAT: (0, 1),
    ApiKey.BROKER_REGISTRATION: (0, 4),
}


class Known:
    """What this node knows of the quorum, as the test says."""

    def __init__(self, view: QuorumView, *, is_leader: bool = False) -> None:
        self.node_id, self.view, self.is_leader = ME, view, is_leader
        self.has_begun = True
        self.applied = asyncio.Event()
        self.applied.set()
        self.awaited: list[int] = []

    def describe(self) -> QuorumView:
        return self.view

    async def until_applied(self, end_offset: int) -> None:
        self.awaited.append(end_offset)
        await self.applied.wait()

    @property
    def knows_active_controller(self) -> bool:
        return self.has_begun and (self.is_leader or self.view.leader is not None)


class Here(DecodedHandler):
    """Serves CreateTopics in this process; counts how often."""

    api_key, versions = ApiKey.CREATE_TOPICS, Versions(2, 7)
    served = 0

    def handle(self, context: RequestContext, request: Any) -> Any:
        self.served += 1
        return response(ApiKey.CREATE_TOPICS).cls()

    refuse = CreateTopicsHandler.refuse


class GuardingHere(Here):
    """Refuses what belongs to the brokers, as CreateTopics does."""

    answered_in = CreateTopicsHandler.answered_in
    asked_in = CreateTopicsHandler.asked_in
    guarded = CreateTopicsHandler.guarded


@asynccontextmanager
async def asked(
    view: QuorumView,
    *here: DecodedHandler,
    known: Known | None = None,
    limit: int = ENVELOPE_BYTES_MAX,
) -> AsyncIterator[ActiveController]:
    ports = system_ports(asyncio.get_running_loop())
    known = known or Known(view, is_leader=view.is_leader)
    handlers = {one.api_key: one for one in here}
    active = ActiveController(known, handlers, ports, envelope_bytes_max=limit)
    try:
        yield active
    finally:
        active.close()
        ports.executors.shutdown()


def hangs_up(*_: int) -> bytes:
    return b""


def says_nothing(*_: int) -> None:
    return None


def answers(key: int, version: int, number: int) -> bytes:
    return answered(key, version, number, ErrorCode.NONE)


def answered(key: int, version: int, number: int, code: ErrorCode, topics: int = 1) -> bytes:
    """The answer to CreateTopics of correlation id 1, where an envelope is asked."""
    made = response(ApiKey(key))
    fields: dict[str, Any] = {}
    if key == ApiKey.ENVELOPE:
        inner = response(ApiKey.CREATE_TOPICS)
        body = inner.encode(inner.cls(topics=topics * [inner.cls.Topics(name="t")]), VERSION)
        data = b"\0\0\0\1\0" + body if code == ErrorCode.NONE else None
        fields = {"response_data": data, "error_code": int(code), "metadata_end": END}
    elif key == ApiKey.CREATE_TOPICS:
        fields = {"topics": [made.cls.Topics(name="t")]}
    return framed(number.to_bytes(4, "big") + b"\0" + made.encode(made.cls(**fields), version))


def decoded(answer: Any) -> Any:
    """An answer as the client reads it."""
    if type(answer) is not list:
        return answer
    return response(ApiKey.CREATE_TOPICS).decode(b"".join(answer), VERSION)[0]


def led_at(port: int) -> QuorumView:
    return QuorumView(epoch=3, leader_id=OTHER, leader=Node(OTHER, "127.0.0.1", port))


def creating(timeout_ms: int = 1) -> Any:
    cls = message("CreateTopicsRequest").cls
    topic = cls.Topics(name="t", num_partitions=1, replication_factor=1)
    return cls(topics=[topic], timeout_ms=timeout_ms)


def forwarded(here: Here, active: ActiveController, decoding: Pool | None = None) -> Forwarded:
    clock = ManualClock()
    return Forwarded(here, active, clock, ManualScheduler(clock), decoding or InlinePool())


async def create(active: ActiveController, timeout_ms: int = 1) -> tuple[int, Here]:
    here = Here()
    context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
    answer = decoded(await forwarded(here, active).handle(context, creating(timeout_ms)))
    (topic,) = answer.topics
    return topic.error_code, here


async def test_a_change_is_answered_when_its_replicas_here_are_made() -> None:
    """A producer that is refused at first may send its first records after later ones."""
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    clock = ManualClock()
    context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
    async with (
        serving(partial(answered, code=ErrorCode.NONE), APIS) as node,
        asked(led_at(node.port)) as active,
    ):
        handler = Forwarded(
            Here(),
            active,
            clock,
            ManualScheduler(clock),
            InlinePool(),
            lambda names: made if names == ["t"] else None,
        )
        answer = asyncio.ensure_future(handler.handle(context, creating(5_000)))
        done, _ = await asyncio.wait([answer], timeout=0.2)
        assert not done, "the broker still makes them"
        made.set_result(None)
        (topic,) = decoded(await answer).topics
    assert topic.error_code == ErrorCode.NONE


async def test_nobody_is_known() -> None:
    async with asked(QuorumView(epoch=3)) as active:
        with pytest.raises(NotControllerError, match="no active controller is known"):
            await active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=1_000)
        code, here = await create(active)
    assert (code, here.served) == (ErrorCode.NOT_CONTROLLER, 0)


async def test_a_controller_that_cannot_be_reached_was_not_asked() -> None:
    (port,) = free_ports(1)
    async with asked(led_at(port)) as active:
        code, here = await create(active)
    assert (code, here.served) == (ErrorCode.NOT_CONTROLLER, 0)


async def test_a_version_that_the_controller_does_not_serve_is_told_at_once() -> None:
    async with (
        serving(partial(answered, code=ErrorCode.UNSUPPORTED_VERSION), APIS) as node,
        asked(led_at(node.port)) as active,
    ):
        waiting = Waiting(active, timeout_ms=5_000)
        (topic,) = (await asyncio.wait_for(waiting.task, 10)).topics
    assert topic.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert topic.error_message == "the active controller does not serve CREATE_TOPICS 7"
    assert node.versions == [0], "asked once"


async def test_a_controller_that_refuses_is_asked_again_less_and_less_often() -> None:
    """It may have too much to do: each broker's waiting clients would be more of it."""
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER]

    def serve(key: int, version: int, number: int) -> bytes:
        return answered(key, version, number, codes.pop() if codes else ErrorCode.NONE)

    async with serving(serve, APIS) as node, asked(led_at(node.port)) as active:
        waiting = Waiting(active, timeout_ms=5_000)
        for asks, waits_ms in ((1, RETRY_MS), (2, 2 * RETRY_MS), (3, 0)):
            await until(lambda asks=asks: len(node.versions) == asks)
            await until(lambda: waiting.task.done() or waiting.scheduler.waiting)
            await waiting.pass_ms(waits_ms - RETRY_MS)
            assert waiting.task.done() or waiting.scheduler.waiting or asks == 3
            await waiting.pass_ms(RETRY_MS)
        (topic,) = decoded(await waiting.task).topics
    assert (topic.error_code, waiting.here.served) == (ErrorCode.NONE, 0)


async def test_a_change_is_answered_once_the_image_has_it_or_after_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(answers, APIS) as node:
        known = Known(led_at(node.port))
        known.applied.clear()
        async with asked(known.view, known=known) as active:
            waiting = asyncio.create_task(create(active, 10_000))
            await until(lambda: known.awaited == [END])
            assert not waiting.done()
            known.applied.set()
            assert (await waiting)[0] == ErrorCode.NONE
            known.applied.clear()
            monkeypatch.setattr("broker.node.active_controller.IMAGE_MS", 1)
            assert (await create(active, 10_000))[0] == ErrorCode.NONE
            assert known.awaited == [END, END]


@pytest.mark.parametrize("serve", [hangs_up, says_nothing])
async def test_a_change_without_an_answer_may_be_done_and_is_done_nowhere_else(
    serve: Serve,
) -> None:
    async with (
        serving(serve, APIS) as node,
        asked(led_at(node.port)) as active,
        asyncio.timeout(10),  # the client allows a millisecond
    ):
        code, here = await create(active)
    assert (code, here.served) == (ErrorCode.REQUEST_TIMED_OUT, 0)


async def test_a_client_without_patience_does_not_end_the_requests_of_others() -> None:
    """All share a connection: it counts as broken only somewhat later."""
    late: list[bytes] = []

    def serve(key: int, version: int, number: int) -> bytes | None:
        answer = answers(key, version, number)
        if not late:
            late.append(answer)
            return None
        return late[0] + answer

    async with serving(serve, APIS) as node, asked(led_at(node.port)) as active:
        assert (await create(active))[0] == ErrorCode.REQUEST_TIMED_OUT
        assert (await create(active, 10_000))[0] == ErrorCode.NONE
        assert node.connections == 1


async def test_a_change_is_answered_as_done_where_the_image_here_fails() -> None:
    """It is done, whatever becomes of this node's own replica."""

    class Failed(Known):
        async def until_applied(self, end_offset: int) -> None:
            raise MetadataUnavailable("the disk failed")

    async with serving(answers, APIS) as node:
        known = Failed(led_at(node.port))
        async with asked(known.view, known=known) as active:
            assert (await create(active, 10_000))[0] == ErrorCode.NONE


async def test_what_changes_nothing_does_not_wait_for_the_image() -> None:
    async with serving(answers, APIS) as node:
        known = Known(led_at(node.port))
        context = RequestContext(55, 2, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        asking = message("DescribeQuorumRequest").cls()
        async with asked(known.view, known=known) as active:
            await active.forward(context, asking, timeout_ms=10_000)
    assert known.awaited == []


async def test_what_the_last_controller_served_counts_while_none_is_reached() -> None:
    (port,) = free_ports(1)
    async with serving(answers, APIS) as node:
        known = Known(led_at(node.port))
        async with asked(known.view, known=known) as active:
            assert active.serves(ApiKey.BROKER_HEARTBEAT) is None, "none was reached"
            heartbeat = codec.request(ApiKey.BROKER_HEARTBEAT).cls()
            await active.ask(ApiKey.BROKER_HEARTBEAT, 1, heartbeat, timeout_ms=10_000)
            for view in (known.view, led_at(port), QuorumView(epoch=4)):
                known.view = view
                assert active.serves(ApiKey.BROKER_HEARTBEAT) is True
                assert active.serves(ApiKey.UPDATE_REMOVED_TOPICS) is False


async def test_a_node_does_not_ask_itself_over_the_wire() -> None:
    """It was elected, or gives up, in this moment."""
    async with serving(answers, APIS) as node:
        view = replace(led_at(node.port), leader_id=ME)
        async with asked(view) as active:
            with pytest.raises(NotControllerError, match="no active controller is known"):
                await active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=1_000)
        assert node.connections == 0


async def test_no_connection_is_opened_per_heartbeat_or_forwarded_request() -> None:
    """A slow change must not hold up heartbeats: they have a connection of their own."""
    may_answer = False

    def serve(key: int, version: int, number: int) -> bytes | None:
        may = may_answer or key != ApiKey.CREATE_TOPICS
        return answers(key, version, number) if may else None

    async with serving(serve, APIS) as node, asked(led_at(node.port)) as active:
        slow = asyncio.create_task(
            active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=60_000)
        )
        await until(lambda: node.versions == [VERSION])
        heartbeat = codec.request(ApiKey.BROKER_HEARTBEAT).cls()
        for _ in range(20):
            await active.ask(ApiKey.BROKER_HEARTBEAT, 1, heartbeat, timeout_ms=10_000)
        assert (slow.done(), node.connections) == (False, 2)
        slow.cancel()
    may_answer = True
    async with serving(serve, APIS) as node, asked(led_at(node.port)) as active:
        for _ in range(20):
            assert (await create(active, 10_000))[0] == ErrorCode.NONE
        assert node.connections == 1
        active.close()
        with pytest.raises(NotControllerError):
            await active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=1_000)
        await until(lambda: node.ended == 1)


async def test_an_envelope_above_the_limit_is_refused_before_it_is_sent() -> None:
    """The controller would end the connection, and with it the requests of other clients."""
    async with serving(answers, APIS) as node, asked(led_at(node.port), limit=100) as active:
        here = Here()
        context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        (topic,) = (await forwarded(here, active).handle(context, creating(10_000))).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST
    assert "socket.request.max.bytes=100" in topic.error_message
    assert node.connections == 0


async def test_a_large_envelope_ends_no_connection_but_its_own() -> None:
    """The controller's limit may be lower than the broker's, which does not know it."""
    may_answer = asyncio.Event()

    def serve(key: int, version: int, number: int) -> bytes | None:
        if key == ApiKey.CREATE_TOPICS:
            return None if not may_answer.is_set() else answers(key, version, number)
        return b""

    async with serving(serve, APIS) as node, asked(led_at(node.port)) as active:
        slow = asyncio.create_task(
            active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=60_000)
        )
        await until(lambda: node.versions == [VERSION])
        large = creating(10_000)
        config = type(large.topics[0]).Configs
        large.topics[0].configs = [config(name=str(i), value="v" * 30_000) for i in range(40)]
        context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        (topic,) = (await forwarded(Here(), active).handle(context, large)).topics
        assert topic.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (slow.done(), node.connections) == (False, 2)
        slow.cancel()


async def test_a_change_whose_controller_is_gone_is_asked_again_of_the_next() -> None:
    """Not of the same one: the lost request may still come to it, after the second."""
    async with (
        serving(hangs_up, APIS) as gone,
        serving(answers, APIS) as node,
        asked(led_at(gone.port)) as active,
    ):
        waiting = Waiting(active, timeout_ms=5_000)
        await until(lambda: waiting.scheduler.waiting)
        waiting.known.view = QuorumView(epoch=4)
        await waiting.pass_ms(1_000)
        assert not waiting.task.done()
        waiting.known.view = replace(led_at(node.port), epoch=4)
        await waiting.pass_ms(4 * RETRY_MS)
        (topic,) = decoded(await waiting.task).topics
    assert topic.error_code == ErrorCode.NONE
    assert (gone.versions, node.versions, waiting.here.served) == ([0], [0], 0)


async def test_a_change_whose_connection_alone_was_lost_is_answered_soon() -> None:
    """Its controller continues: no other comes, however long the client would wait."""
    async with serving(hangs_up, APIS) as node, asked(led_at(node.port)) as active:
        waiting = Waiting(active, timeout_ms=60_000)
        await until(lambda: waiting.scheduler.waiting)
        await waiting.pass_ms(NEXT_MS - 2 * RETRY_MS)
        assert not waiting.task.done()
        await waiting.pass_ms(4 * RETRY_MS)
        (topic,) = (await waiting.task).topics
    assert topic.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert node.versions == [0]


async def test_the_next_controller_may_be_known_before_the_connection_is_lost() -> None:
    async with serving(answers, APIS) as node, asked(QuorumView(epoch=3)) as active:
        waiting = Waiting(active, timeout_ms=5_000)

        def goes_down(key: int, version: int, number: int) -> bytes:
            waiting.known.view = replace(led_at(node.port), epoch=4)
            return hangs_up(key, version, number)

        async with serving(goes_down, APIS) as gone:
            waiting.known.view = led_at(gone.port)
            await waiting.pass_ms(RETRY_MS)
            await until(lambda: gone.ended == 1)
            await until(lambda: waiting.task.done() or waiting.scheduler.waiting)
            await waiting.pass_ms(5_000)
        (topic,) = decoded(await waiting.task).topics
    assert topic.error_code == ErrorCode.NONE


@pytest.mark.parametrize("key", [None, ApiKey.DELETE_TOPICS, ApiKey.UNREGISTER_BROKER])
async def test_a_change_whose_controller_is_gone_is_asked_for_once(key: ApiKey | None) -> None:
    """Without another controller; of a deletion, what was made again would be deleted, too."""
    deletes = key is not None

    class Deleting(Here):
        api_key = key or ApiKey.DELETE_TOPICS

    async with (
        serving(hangs_up, APIS) as gone,
        serving(answers, APIS) as node,
        asked(led_at(gone.port)) as active,
    ):
        waiting = Waiting(active, timeout_ms=5_000, here=Deleting() if deletes else None)
        await until(lambda: waiting.task.done() or waiting.scheduler.waiting)
        assert waiting.task.done() == deletes
        waiting.known.view = replace(led_at(node.port), epoch=3 + deletes)
        await waiting.pass_ms(5_000)
        (topic,) = (await waiting.task).topics
    assert topic.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (gone.versions, node.versions) == ([0], [])


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER])
async def test_what_belongs_to_the_brokers_is_refused_whoever_leads(code: ErrorCode) -> None:
    """Controllers of Kafka would do it: the rest alone is handed on to them."""

    def serve(key: int, version: int, number: int) -> bytes:
        return answered(key, version, number, code)

    async with serving(serve, APIS) as node, asked(led_at(node.port)) as active:
        here = GuardingHere()
        handler, request = forwarded(here, active), creating(10_000 if code == 0 else 1)
        cls = type(request.topics[0])
        context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        alone = message("CreateTopicsRequest").cls(topics=[cls(name=GUARDED)], timeout_ms=10_000)
        (topic,) = (await handler.handle(context, alone)).topics
        assert (topic.name, topic.error_code) == (GUARDED, ErrorCode.POLICY_VIOLATION)
        assert node.connections == 0
        request.topics = [cls(name=GUARDED), *request.topics]
        answer = await handler.handle(context, request)
    assert [(one.name, one.error_code) for one in answer.topics] == [
        (GUARDED, ErrorCode.POLICY_VIOLATION),
        ("t", code),
    ]
    assert [one.name for one in request.topics] == ["t"]


async def test_a_long_answer_that_is_added_to_is_decoded_beside_the_loop() -> None:
    pool, count = HeldPool(), DECODED_AT_ONCE_BYTES
    request = creating(10_000)
    request.topics.append(type(request.topics[0])(name=GUARDED))
    context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
    serve = partial(answered, code=ErrorCode.NONE, topics=count)
    async with serving(serve, APIS) as node, asked(led_at(node.port)) as active:
        handler = forwarded(GuardingHere(), active, pool)
        answer = asyncio.ensure_future(handler.handle(context, request))
        await until(lambda: pool.held)
        assert not answer.done()
        pool.release()
        assert [one.name for one in (await answer).topics] == [GUARDED] + count * ["t"]


async def test_where_this_node_leads_it_is_served_here() -> None:
    async with asked(QuorumView(epoch=3, leader_id=ME, is_leader=True)) as active:
        here = Here()
        context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        forwarded(here, active).handle(context, creating())
    assert here.served == 1


class Slow(Here):
    """Answers once `may_answer` is set."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def handle(self, context: RequestContext, request: Any) -> Any:
        await self.may_answer.wait()
        return super().handle(context, request)


async def test_the_broker_in_the_active_controllers_process_needs_no_connection() -> None:
    here = Slow()
    async with asked(QuorumView(epoch=3, leader_id=ME, is_leader=True), here) as active:
        with pytest.raises(DecisionTimedOut):
            await active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=1)
        here.may_answer.set()
        await active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=10_000)
        with pytest.raises(NotControllerError):
            await active.ask(ApiKey.DELETE_TOPICS, VERSION, creating(), timeout_ms=1_000)
    assert here.served == 1


class Waiting:
    """A CreateTopics at a node that knows no leader; the test moves the clock."""

    def __init__(self, active: ActiveController, timeout_ms: int, here: Here | None = None) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.here = here or Here()
        self.known: Any = active._node
        context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        handler = Forwarded(self.here, active, self.clock, self.scheduler, InlinePool())
        self.task = asyncio.ensure_future(handler.handle(context, creating(timeout_ms)))

    async def pass_ms(self, step_ms: int) -> None:
        """Move the clock by steps of one attempt, and let each attempt fail."""
        for _ in range(step_ms // RETRY_MS):
            for _ in range(3):
                await asyncio.sleep(0)
            self.scheduler.advance(RETRY_MS)
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_client_waits_for_an_election_and_is_answered_by_the_elected() -> None:
    async with serving(answers, APIS) as node, asked(QuorumView(epoch=3)) as active:
        waiting = Waiting(active, timeout_ms=5_000)
        await waiting.pass_ms(3_000)
        assert not waiting.task.done()
        waiting.known.view = led_at(node.port)
        await waiting.pass_ms(RETRY_MS)
        answer = decoded(await waiting.task)
    assert [(one.name, one.error_code) for one in answer.topics] == [("t", ErrorCode.NONE)]
    assert waiting.here.served == 0


async def test_a_client_waits_for_an_election_that_this_node_wins() -> None:
    async with asked(QuorumView(epoch=3)) as active:
        waiting = Waiting(active, timeout_ms=5_000)
        await waiting.pass_ms(2_000)
        waiting.known.is_leader, waiting.known.has_begun = True, False
        await waiting.pass_ms(1_000)
        assert waiting.here.served == 0, "elected, and not the active controller yet"
        waiting.known.has_begun = True
        await waiting.pass_ms(RETRY_MS)
        await waiting.task
    assert waiting.here.served == 1


async def test_a_node_that_was_elected_serves_when_it_has_begun() -> None:
    view = QuorumView(epoch=3, leader_id=ME, is_leader=True)
    known = Known(view, is_leader=True)
    known.has_begun = False
    async with asked(view, known=known) as active:
        waiting = Waiting(active, timeout_ms=5_000)
        await waiting.pass_ms(1_000)
        assert waiting.here.served == 0
        known.has_begun = True
        await waiting.pass_ms(RETRY_MS)
        await waiting.task
    assert waiting.here.served == 1


async def test_a_controller_that_refuses_on_and_on_is_asked_each_second() -> None:
    class Refusing:
        """A way to a controller that has too much to do."""

        is_here, has_begun, epoch, asked = False, True, 3, 0

        async def forward(self, *_: Any, **__: Any) -> list[bytes]:
            self.asked += 1
            raise NotControllerError("too much to do")

    refusing: Any = Refusing()
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
    handler = Forwarded(Here(), refusing, clock, scheduler, InlinePool())
    task = asyncio.ensure_future(handler.handle(context, creating(20_000)))
    while not task.done():
        await turns()
        scheduler.advance(RETRY_MS)
    assert 20 <= refusing.asked <= 30


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(5_000, 5_000), (-1, DECISION_TIMEOUT_MS)])
async def test_without_an_election_the_client_is_refused_when_its_time_is_over(
    timeout_ms: int, waits_ms: int
) -> None:
    async with asked(QuorumView(epoch=3)) as active:
        waiting = Waiting(active, timeout_ms)
        await waiting.pass_ms(waits_ms - 2 * RETRY_MS)
        assert not waiting.task.done()
        await waiting.pass_ms(2 * RETRY_MS)
        answer = await waiting.task
    assert [one.error_code for one in answer.topics] == [ErrorCode.NOT_CONTROLLER]
    assert waiting.here.served == 0


async def test_the_quorum_is_described_at_once_or_not_at_all() -> None:
    view = QuorumView(epoch=3)
    async with asked(view) as active:
        clock = ManualClock()
        here = DescribeQuorumHandler(lambda: view)
        handler = Forwarded(here, active, clock, ManualScheduler(clock), InlinePool())
        cls = message("DescribeQuorumRequest").cls
        topic = cls.Topics(topic_name="__cluster_metadata")
        topic.partitions = [topic.Partitions(partition_index=0)]
        context = RequestContext(55, 2, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        answer = await handler.handle(context, cls(topics=[topic]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
