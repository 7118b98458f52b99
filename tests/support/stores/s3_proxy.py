"""An HTTP proxy in front of an S3 endpoint that fails as networks and stores fail.

Bodies are held whole, which suits the small objects of tests. It signs nothing and passes headers
on as they are: with path-style addressing the signature is over this proxy's own address. Each
client connection has one connection to the store; both are kept alive.
"""

import asyncio
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.stores.http_streams import LINE_BYTES_MAX, NO_BODY, Message, Peer, Upstream
from tests.support.stores.s3_faults import (
    INTERNAL_ERROR,
    SLOW_DOWN,
    Fault,
    FaultPlan,
    Kind,
    Rule,
    failed_deletion,
    what_is_asked,
)


class _Gone(Exception):
    """This connection is at its end."""


class S3Proxy:
    """The proxy, on a thread of its own. Rules are set from any thread.

    Attributes:
        url: what a client takes for the store.
        plan: rules and counts.
        connections: how many clients have opened.
        on_request, on_applied: called on the proxy's thread with kind and key of each request, when
            it has come and when the store has answered it but the client does not know; quick.
        pause_s: how long SLOW_FIRST_BYTE pauses, and LATE waits after its client has gone.
    """

    def __init__(self, upstream_url: str, *, seed: int = 0, pause_s: float = 0.5) -> None:
        upstream = urlsplit(upstream_url)
        self._upstream = (upstream.hostname or "127.0.0.1", upstream.port or 80)
        self.plan, self.pause_s, self.connections = FaultPlan(seed), pause_s, 0
        self.on_request = self.on_applied = _ignore
        self._loop = asyncio.new_event_loop()
        self._released = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LINE_BYTES_MAX)
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3-proxy", daemon=True)
        self._thread.start()

    def inject(self, *rules: Rule) -> None:
        """These faults strike from now on, and no others."""
        self.plan.replace(rules)
        self._loop.call_soon_threadsafe(self._released.clear)

    def calm(self) -> None:
        """No more faults; what hangs is let go (its request is then answered)."""
        self.plan.replace(())
        self._loop.call_soon_threadsafe(self._released.set)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        print(self.plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ on the loop

    async def _end(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        client, store = Peer(reader, writer), Upstream(self._upstream)
        try:
            while True:
                await self._one(client, store)
        except (_Gone, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side has gone away, or this fault is to look so
        finally:
            self._open.discard(task)
            client.close()
            store.close()

    async def _one(self, client: Peer, store: Upstream) -> None:
        request = await client.head()
        method, target, _ = request.first_line.split(" ")
        kind, key = what_is_asked(method, target)
        fault = self.plan.next_fault(kind, key)
        self.on_request(kind, key)
        if request.header("expect").lower() == "100-continue":
            await client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(request.header("content-length") or 0)
        if fault is Fault.RESET_MID_BODY and length:
            request.body = await client.reader.readexactly(length // 2)
            await store.send_half(request)
            client.reset()
            raise _Gone
        request.body = await client.body(request)
        answer = await self._answer(fault, kind, request, client, store)
        self.on_applied(kind, key)
        await self._hand_over(fault, method, answer, client)

    async def _answer(
        self, fault: Fault | None, kind: Kind, request: Message, client: Peer, store: Upstream
    ) -> Message:
        """Ask the store, or make up an answer; what strikes before it answers happens here."""
        match fault:
            case Fault.ERROR_500:
                return _made_up("500 Internal Server Error", INTERNAL_ERROR)
            case Fault.SLOW_DOWN:
                return _made_up("503 Slow Down", SLOW_DOWN)
            case Fault.ERROR_IN_200 if kind is Kind.DELETE_OBJECTS:
                return _made_up("200 OK", failed_deletion(request.body))
            case Fault.ERROR_IN_200:
                return _made_up("200 OK", INTERNAL_ERROR)
            case Fault.FLIP_REQUEST:
                request.body = _flipped(request.body)
            case Fault.HANG:
                await self._until_gone(client, or_released=True)
            case Fault.LATE:
                await self._until_gone(client, or_released=False)
                await asyncio.sleep(self.pause_s)
            case Fault.SLOW_FIRST_BYTE:
                await asyncio.sleep(self.pause_s)
            case _:
                pass
        answer = await store.ask(request)
        if fault in (Fault.LOST_ANSWER, Fault.LATE):
            raise _Gone
        return answer

    async def _until_gone(self, client: Peer, *, or_released: bool) -> None:
        """Wait until the client closes its connection.

        Raises:
            _Gone: it did, where a release would have been the other way to continue.
        """
        gone = asyncio.ensure_future(client.reader.read(1))
        waits: list[asyncio.Future[object]] = [gone]  # type: ignore[list-item]
        if or_released:
            waits.append(asyncio.ensure_future(self._released.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            is_gone = gone.done()
        finally:
            for wait in waits:
                wait.cancel()
        if or_released and is_gone:
            raise _Gone

    async def _hand_over(
        self, fault: Fault | None, method: str, answer: Message, client: Peer
    ) -> None:
        """Give the answer to the client; what strikes on this way happens here."""
        status = int(answer.first_line.split(" ")[1])
        if method == "HEAD" or status in NO_BODY:
            await client.send(answer.head())
            return
        half = len(answer.body) // 2
        is_data = status in {200, 206} and len(answer.body) > 0
        match fault:
            case Fault.RESET_MID_BODY | Fault.CUT_BODY if is_data:
                await client.send(answer.head(len(answer.body)) + answer.body[:half])
                if fault is Fault.RESET_MID_BODY:
                    client.reset()
                raise _Gone
            case Fault.SHORT_BODY if is_data:
                answer.body = answer.body[:half]
            case Fault.FLIP_ANSWER if is_data:
                answer.body = _flipped(answer.body)
            case _:
                pass
        await client.send(answer.whole())


def _ignore(kind: Kind, key: str) -> None:
    """Nobody wants to know."""


def _made_up(status: str, body: bytes) -> Message:
    return Message(f"HTTP/1.1 {status}", [("Content-Type", "application/xml")], body)


def _flipped(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 0x20]) + body[middle + 1 :] if body else body
