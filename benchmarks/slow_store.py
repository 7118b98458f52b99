"""A far-away store: an HTTP proxy in front of S3 with a first-byte delay and a bounded bandwidth.

    python -m benchmarks.slow_store --upstream http://127.0.0.1:4566 [--first-byte-ms 30]
        [--mb-per-s 200]

It prints `ready endpoint=URL` and serves until it gets SIGTERM. Every request waits the delay
before its first byte, in parallel with others; all bodies together share the bandwidth. An object
is kept in memory from its first GET on. So delay and bandwidth do not depend on the store behind.
`GET /_counts` returns the requests and bytes since the last `DELETE /_counts` as JSON.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

SLICE_BYTES = 256 << 10
HEAD_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """Name of the S3 call, as far as counting needs it."""
        query = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        marks = [mark for mark in ("uploads", "uploadId", "partNumber", "delete") if mark in query]
        if "list-type" in query:
            marks.append("list")
        return "+".join([self.method, *marks])


class Bandwidth:
    """Hands out bytes at a fixed rate, in the order in which they are asked for."""

    def __init__(self, bytes_per_s: float) -> None:
        self._rate = bytes_per_s
        self._free_at = 0.0

    async def take(self, size_bytes: int) -> None:
        now = time.monotonic()
        self._free_at = max(self._free_at, now - 0.01) + size_bytes / self._rate
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


class SlowStore:
    def __init__(self, upstream: str, first_byte_s: float, bytes_per_s: float) -> None:
        address = urlsplit(upstream)
        self._upstream = (address.hostname or "127.0.0.1", address.port or 80)
        self._first_byte_s = first_byte_s
        self._bandwidth = Bandwidth(bytes_per_s)
        self._objects: dict[str, asyncio.Task[bytes | None]] = {}
        self.counts: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client connection."""
        try:
            while (request := await read_request(reader, writer)) is not None:
                await self._answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == "/_counts":
            body = json.dumps(self.counts).encode()
            if request.method == "DELETE":
                self.counts.clear()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
            return
        began = time.monotonic()
        self.counts[f"{request.kind} requests"] += 1
        self.counts[f"{request.kind} bytes in"] += len(request.body)
        path = urlsplit(request.target).path
        if request.method in {"PUT", "POST", "DELETE"}:
            self._objects.pop(path, None)
        if request.method == "GET" and "?" not in request.target.replace("?x-id=GetObject", ""):
            kept = await self._kept(path, request)
            if kept is not None:
                await self._send_range(request, kept, writer, began)
                return
        await self._bandwidth.take(len(request.body))
        answer = await self._ask(request)
        await self._wait_first_byte(began)
        await self._bandwidth.take(len(answer))
        self.counts[f"{request.kind} bytes out"] += len(answer)
        writer.write(answer)
        await writer.drain()

    async def _wait_first_byte(self, began: float) -> None:
        await asyncio.sleep(max(0.0, began + self._first_byte_s - time.monotonic()))

    async def _kept(self, path: str, request: Request) -> bytes | None:
        """The whole object; None where the store has none of that name."""
        if path not in self._objects:
            self._objects[path] = asyncio.create_task(self._fetch_whole(request))
        return await asyncio.shield(self._objects[path])

    async def _fetch_whole(self, request: Request) -> bytes | None:
        headers = {name: text for name, text in request.headers.items() if name != "range"}
        answer = await self._ask(Request("GET", request.target, headers, b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or b"chunked" in head.lower():
            self._objects.pop(urlsplit(request.target).path, None)
            return None
        return body

    async def _send_range(
        self,
        request: Request,
        kept: bytes,
        writer: asyncio.StreamWriter,
        began: float,
    ) -> None:
        size = len(kept)
        first, last = 0, size - 1
        asked = request.headers.get("range", "")
        if asked.startswith("bytes="):
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end), size - 1) if end else size - 1
        status = b"206 Partial Content" if asked else b"200 OK"
        length = last - first + 1
        await self._wait_first_byte(began)
        writer.write(
            b"HTTP/1.1 %b\r\nContent-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\n"
            b'ETag: "kept"\r\n\r\n' % (status, length, first, last, size)
        )
        await writer.drain()
        self.counts[f"{request.kind} bytes out"] += length
        with memoryview(kept) as body:
            for position in range(first, last + 1, SLICE_BYTES):
                end = min(position + SLICE_BYTES, last + 1)
                await self._bandwidth.take(end - position)
                writer.write(body[position:end])
                await writer.drain()

    async def _ask(self, request: Request) -> bytes:
        """The store's whole answer, ready to be passed on."""
        reader, writer = await asyncio.open_connection(*self._upstream, limit=1 << 22)
        headers = {**request.headers, "connection": "close", "content-length": len(request.body)}
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + request.body)
        try:
            answer = await reader.read()
        finally:
            writer.close()
        head, end, body = answer.partition(b"\r\n\r\n")
        kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        return b"\r\n".join(kept) + end + body


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    """The next request of a connection, None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.lower(): text.strip()
        for name, _, text in (line.partition(":") for line in lines if line)
    }
    if headers.pop("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(headers.pop("content-length", "0")))
    return Request(method, target, headers, body)


async def run(options: argparse.Namespace) -> None:
    store = SlowStore(options.upstream, options.first_byte_ms / 1_000, options.mb_per_s * 1e6)
    server = await asyncio.start_server(
        store.serve, "127.0.0.1", options.port, limit=HEAD_BYTES_MAX
    )
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    port = server.sockets[0].getsockname()[1]
    print(f"ready endpoint=http://127.0.0.1:{port}", flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--first-byte-ms", type=float, default=30)
    parser.add_argument("--mb-per-s", type=float, default=200)
    asyncio.run(run(parser.parse_args()))
    sys.exit(0)


if __name__ == "__main__":
    main()
