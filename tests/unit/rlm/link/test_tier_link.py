"""The link over a real socket pair: order, descriptors, sizes, and the end of either side."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from rlm.link.endpoint import Endpoint, FakeLink, LinkEndedError, LinkFailureError, Received, Reply
from rlm.link.messages import Ack, Connect, Failure, Heartbeat, Image, ImageAtLeast, Released
from rlm.link.socket_transport import FRAMES_AT_ONCE_MAX, SocketTransport, make_socket_pair
from runtime.disk import Disk

Handler = Callable[[Received, Reply], None]


async def wait(future: "Future[Received]") -> Received:
    return await asyncio.wait_for(asyncio.wrap_future(future), 5)


def connected(answer: Handler) -> tuple[Endpoint, Endpoint, list[str]]:
    loop = asyncio.get_running_loop()
    left_socket, right_socket = make_socket_pair()
    ends: list[str] = []
    left = Endpoint(lambda received, reply: None, lambda: ends.append("left"))
    right = Endpoint(answer, lambda: ends.append("right"))
    SocketTransport(left_socket, loop, left)
    SocketTransport(right_socket, loop, right)
    return left, right, ends


async def test_a_question_gets_its_answer_with_its_descriptors() -> None:
    disk = Disk()

    def answer(received: Received, reply: Reply) -> None:
        file = disk.memfd("x")
        disk.write_at(file, 0, b"remote bytes")
        reply(Ack(reason="with a file"), [file])

    left, _, _ = connected(answer)
    for _ in range(100):
        received = await wait(left.ask(Heartbeat()))
        assert received.message == Ack(reason="with a file")
        assert disk.read_at(received.files[0], 0, 100) == b"remote bytes"
    left.end()


def test_the_one_message_with_a_secret_does_not_show_it() -> None:
    assert "tok" not in repr(Connect({"sasl.password": "tok"}))


async def test_a_message_that_cannot_be_taken_holds_up_no_other_and_comes_once() -> None:
    disk, taken, said = Disk(), [], list[str]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context["message"]))

    def answer(received: Received, reply: Reply) -> None:
        taken.append(received.message)
        if isinstance(received.message, ImageAtLeast):
            raise FileNotFoundError("a defect of ours")
        file = disk.memfd("x")
        disk.write_at(file, 0, b"%d" % len(taken))
        reply(Ack(), [file])

    left, _, ends = connected(answer)
    kinds = [Heartbeat(), ImageAtLeast(), Heartbeat(), ImageAtLeast(), Heartbeat()]
    asked = [left.ask(kind) for kind in kinds]
    for number in (1, 3, 5):
        received = await wait(asked[number - 1])
        assert disk.read_at(received.files[0], 0, 9) == b"%d" % number
    assert taken == kinds
    assert not ends
    assert said == ["a message was not taken: kind=ImageAtLeast"] * 2
    left.end()


async def test_messages_larger_than_the_socket_arrive_whole_and_in_order() -> None:
    ids = [bytes([n % 251]) * 16 for n in range(200_000)]

    def answer(received: Received, reply: Reply) -> None:
        reply(Image(ids, 5, "cluster"))

    left, _, _ = connected(answer)
    asked = [left.ask(ImageAtLeast()) for _ in range(4)]
    for future in asked:
        assert (await wait(future)).message == Image(ids, 5, "cluster")
    left.end()


async def test_thousands_of_small_messages_do_not_hold_the_loop() -> None:
    turn, taken_in = 0, list[int]()
    left, _, _ = connected(lambda received, reply: taken_in.append(turn))
    for number in range(2_000):
        left.tell(Released([number]))
    async with asyncio.timeout(5):
        while len(taken_in) < 2_000:
            turn += 1
            await asyncio.sleep(0)
    assert max(Counter(taken_in).values()) <= 2 * FRAMES_AT_ONCE_MAX
    left.end()


async def test_what_the_socket_did_not_take_leaves_some_frames_at_a_time() -> None:
    turn, sent = 0, Counter[int]()

    class Counting(socket.socket):
        def send(self, *args: Any) -> int:
            size = super().send(*args)
            sent[turn] += 1
            return size

    near, far = make_socket_pair()
    left = Endpoint(lambda received, reply: None, lambda: None)
    near = Counting(fileno=near.detach())
    transport = SocketTransport(near, asyncio.get_running_loop(), left)
    far.setblocking(False)
    while len(transport._unsent) < 10 * FRAMES_AT_ONCE_MAX:
        left.tell(Released([1]))
    async with asyncio.timeout(5):
        while transport._unsent:
            with contextlib.suppress(BlockingIOError):
                while True:
                    far.recv(1 << 20)
            turn += 1
            await asyncio.sleep(0)
    del sent[0]  # told, one by one
    assert max(sent.values()) <= FRAMES_AT_ONCE_MAX
    left.end()
    far.close()


async def test_a_refusal_is_an_error_at_the_asker() -> None:
    left, _, _ = connected(lambda received, reply: reply(Failure(6, "not the leader")))
    with pytest.raises(LinkFailureError, match="not the leader"):
        await wait(left.ask(Heartbeat()))
    left.end()


async def test_the_end_of_one_side_is_noticed_and_fails_what_waits() -> None:
    left, right, ends = connected(lambda received, reply: None)
    asked = left.ask(Heartbeat())
    await asyncio.sleep(0)
    right.end()
    with pytest.raises(LinkEndedError):
        await wait(asked)
    assert sorted(ends) == ["left", "right"]
    with pytest.raises(LinkEndedError):
        await wait(left.ask(Heartbeat()))


def test_an_answer_given_twice_counts_once_and_one_way_messages_have_none() -> None:
    got: list[Received] = []

    def answer(received: Received, reply: Reply) -> None:
        got.append(received)
        reply(Ack())
        reply(Ack(taken=False))

    left = Endpoint(lambda received, reply: None, lambda: None)
    right = Endpoint(answer, lambda: None)
    link = FakeLink(left, right)
    left.tell(Released([1]))
    asked = left.ask(Heartbeat())
    link.pump()
    assert asked.result(0).message == Ack()
    assert [each.message for each in got] == [Released([1]), Heartbeat()]


def test_a_cut_fake_link_fails_what_is_on_its_way() -> None:
    left = Endpoint(lambda received, reply: None, lambda: None)
    right = Endpoint(lambda received, reply: reply(Ack()), lambda: None)
    link = FakeLink(left, right)
    asked = left.ask(Heartbeat())
    link.cut()
    with pytest.raises(LinkEndedError):
        asked.result(0)
