"""A connection over real sockets: frames, order, bounds, deadlines, files."""

import asyncio
import logging
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.network.buffers import PROGRESS_BYTES
from broker.network.limits import NEVER_MS, NetworkLimits
from broker.network.registry import CloseConnection, OrderedAnswer, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.framing import RequestHeader, read_request_header
from runtime.disk import Disk, FileRegion, OpenFile
from tests.support.worlds.network import Client, frame, serving
from tests.support.worlds.waiting import until


async def test_many_requests_in_one_write_are_answered_in_order() -> None:
    async with serving() as harness:
        client = await harness.connect()
        client.send(b"".join(frame(b"%d" % i, correlation_id=i) for i in range(500)))
        for i in range(500):
            assert await client.answer() == (i, b"%d" % i)


@pytest.mark.parametrize("size", [0, 1, 30, 40_000])
async def test_a_frame_that_arrives_in_pieces_is_served(size: int) -> None:
    body = os.urandom(size)
    data = frame(body, correlation_id=7) + frame(b"next", correlation_id=8)
    cuts = sorted({*range(1, 24), len(data) // 2, len(data) - 30, len(data) - 1} - {0})

    async with serving() as harness:
        client = await harness.connect()
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            client.send(data[begin:end])
            await client.writer.drain()
            await asyncio.sleep(0)
        assert await client.answer() == (7, body)
        assert await client.answer() == (8, b"next")


async def test_large_frames_are_received_whole_and_their_buffer_is_reused() -> None:
    async with serving() as harness:
        client = await harness.connect()
        for i in range(6):
            body = os.urandom(900_000 + i)
            client.send(frame(body, correlation_id=i) + frame(b"s", correlation_id=100 + i))
            assert await client.answer() == (i, body)
            assert await client.answer() == (100 + i, b"s")


async def test_an_answer_waits_for_the_answers_before_it() -> None:
    gates: dict[bytes, asyncio.Future[list[object]]] = {}

    def raw(_: RequestContext, body: bytes) -> Any:
        if body.startswith(b"wait"):
            gates[body] = asyncio.get_running_loop().create_future()
            return gates[body]
        return [body]

    async with serving(raw) as harness:
        client = await harness.connect()
        for i, body in enumerate([b"a", b"wait1", b"b", b"wait2", b"c"]):
            client.send(frame(body, correlation_id=i))
        assert await client.answer() == (0, b"a")
        await until(lambda: len(gates) == 2)
        gates[b"wait2"].set_result([b"second"])
        gates[b"wait1"].set_result([b"first"])
        answers = [await client.answer() for _ in range(4)]
        assert answers == [(1, b"first"), (2, b"b"), (3, b"second"), (4, b"c")]


async def test_a_request_without_an_answer_leaves_no_gap() -> None:
    def raw(_: RequestContext, body: bytes) -> list[object] | None:
        return None if body == b"quiet" else [body]

    async with serving(raw) as harness:
        client = await harness.connect()
        client.send(frame(b"quiet") + frame(b"loud", correlation_id=2))
        assert await client.answer() == (2, b"loud")


async def test_a_client_that_goes_away_cancels_what_it_waits_for() -> None:
    gates: list[asyncio.Future[list[object]]] = []

    def raw(_: RequestContext, body: bytes) -> Any:
        gates.append(asyncio.get_running_loop().create_future())
        return gates[-1]

    async with serving(raw) as harness:
        client = await harness.connect()
        client.send(frame(b"x"))
        await until(lambda: bool(gates))
        client.close()
        await until(gates[0].cancelled)


class TestFileRegions:
    def _file(self, tmp_path: Path, data: bytes) -> OpenFile:
        path = tmp_path / "data"
        path.write_bytes(data)
        return Disk().open_read(path)

    async def _serve(self, parts: list[object], expected: bytes, disk: Disk | None = None) -> None:
        async with serving(lambda *_: list(parts), disk=disk) as harness:
            client = await harness.connect()
            client.send(frame(b"1", correlation_id=1) + frame(b"2", correlation_id=2))
            assert await client.answer() == (1, expected)
            assert await client.answer() == (2, expected)
            client.close()

    async def test_regions_are_sent_between_bytes(self, tmp_path: Path) -> None:
        data = os.urandom(3_000_000)
        file = self._file(tmp_path, data)
        parts = [b"head", FileRegion(file, 10, 2_500_000), b"mid", FileRegion(file, 0, 1), b"end"]
        await self._serve(parts, b"head" + data[10:2_500_010] + b"mid" + data[:1] + b"end")

    async def test_cold_regions_are_read_by_a_thread(self, tmp_path: Path) -> None:
        class ColdDisk(Disk):
            def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
                return position % 2 == 0

        data = os.urandom(2_500_001)
        file = self._file(tmp_path, data)
        parts = [b"h", FileRegion(file, 1, 2_500_000), FileRegion(file, 2, 5), b"t"]
        await self._serve(parts, b"h" + data[1:] + data[2:7] + b"t", ColdDisk())

    @pytest.mark.parametrize("resident", [True, False])
    async def test_a_file_shorter_than_promised_closes(
        self, tmp_path: Path, resident: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        class FixedDisk(Disk):
            def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
                return resident

        file = self._file(tmp_path, b"short")

        region = [FileRegion(file, 0, 100)]
        async with serving(lambda *_: list(region), disk=FixedDisk()) as harness:
            client = await harness.connect()
            client.send(frame())
            rest = await client.reader.read()
            assert len(rest) <= 8 + 5
        assert "shorter than the region" in caplog.text


class TestWhatCannotBeServed:
    async def _closes(self, data: bytes, caplog: pytest.LogCaptureFixture, reason: str) -> None:
        with caplog.at_level(logging.INFO):
            async with serving() as harness:
                other = await harness.connect()
                client = await harness.connect()
                client.send(data)
                assert await client.is_closed()
                other.send(frame(b"still", correlation_id=3))
                assert await other.answer() == (3, b"still")
                other.close()
        lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.INFO]
        assert len(lines) == 1
        assert reason in lines[0]
        assert "127.0.0.1:" in lines[0]
        assert "\n" not in lines[0]

    @pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 104_857_601])
    async def test_an_absurd_size_closes(self, size: int, caplog: pytest.LogCaptureFixture) -> None:
        await self._closes(struct.pack(">i", size) + b"rest", caplog, f"{size} bytes is announced")

    async def test_http_closes_and_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        await self._closes(b"GET / HTTP/1.1\r\n\r\n", caplog, "looks like HTTP")

    async def test_tls_closes_and_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        await self._closes(
            b"\x16\x03\x01\x02\0\x01", caplog, "looks like TLS, and this listener is"
        )

    async def test_an_unknown_api_key_closes(self, caplog: pytest.LogCaptureFixture) -> None:
        await self._closes(frame(api_key=999), caplog, "api key 999 is not served")

    async def test_an_unknown_version_closes(self, caplog: pytest.LogCaptureFixture) -> None:
        await self._closes(frame(version=14), caplog, "version 14 of api key 3 is not served")

    async def test_a_cut_header_closes(self, caplog: pytest.LogCaptureFixture) -> None:
        await self._closes(struct.pack(">i", 5) + b"\0\3\0\0\0", caplog, "header is cut short")

    async def test_a_client_id_longer_than_the_frame_closes(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        data = struct.pack(">hhih", 3, 0, 0, 500)
        await self._closes(struct.pack(">i", len(data)) + data, caplog, "malformed request header")

    async def test_a_half_closed_frame_closes_at_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving() as harness:
            client = await harness.connect()
            client.send(struct.pack(">i", 1000) + b"ten bytes!")
            client.writer.write_eof()
            assert await client.is_closed()
        assert "inside a request" in caplog.text

    async def test_a_hostile_client_id_is_served_and_escaped(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def raw(context: RequestContext, body: bytes) -> list[object]:
            if body == b"end":
                raise CloseConnection("on demand")
            return [context.client_id.encode()]

        evil = "a\r\nERROR forged\x1b[31m"

        async with serving(raw) as harness:
            client = await harness.connect()
            client.send(frame(b"x", client_id=evil.encode()))
            assert await client.answer() == (0, evil.encode())
            client.send(frame(b"x", client_id=None))
            assert await client.answer() == (0, b"")
            client.send(frame(b"end", client_id=evil.encode()))
            assert await client.is_closed()
        assert "a\\r\\nERROR forged\\x1b[31m" in caplog.text
        assert "\nERROR forged" not in caplog.text

    async def test_a_client_id_that_is_no_utf8_is_served_with_its_bad_bytes_replaced(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[RequestHeader] = []

        def counted(frame: memoryview) -> RequestHeader:
            read.append(read_request_header(frame))
            return read[-1]

        monkeypatch.setattr("broker.network.dispatch.read_request_header", counted)
        async with serving(lambda context, _: [context.client_id.encode()]) as harness:
            client = await harness.connect()
            for _ in range(3):
                client.send(frame(client_id=b"a\xff\xe2\x82"))
                assert await client.answer() == (0, "a\ufffd\ufffd".encode())
        assert len(read) == 1, "remembered by its bytes"

    async def test_the_answers_before_a_bad_request_are_still_sent(self) -> None:
        async with serving() as harness:
            client = await harness.connect()
            client.send(frame(b"good", correlation_id=5) + frame(api_key=999))
            assert await client.answer() == (5, b"good")
            assert await client.is_closed()

    async def test_api_versions_of_an_unknown_version_is_answered_in_version_0(self) -> None:
        async with serving() as harness:
            client = await harness.connect()
            for body in (b"", b"\0", b"\0\xff\xff\xff"):
                flexible_header_end = b"\0"
                client.send(
                    frame(flexible_header_end + body, api_key=ApiKey.API_VERSIONS, version=99)
                )
                _, answer = await client.answer()
                value, end = response(ApiKey.API_VERSIONS).decode(answer, 0)
                assert end == len(answer)
                assert value.error_code == 35
                assert [(k.api_key, k.min_version, k.max_version) for k in value.api_keys] == [
                    (18, 0, 4)
                ]
            client.close()


class TestDeadlines:
    async def test_a_frame_that_is_never_complete_closes(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving(limits=NetworkLimits(frame_ms_max=5_000)) as harness:
            for size in (1_000, 1_000_000):
                client = await harness.connect()
                client.send(frame(b"first"))
                await client.answer()
                for part in (struct.pack(">i", size), b"\0", b"\0"):
                    # a byte every 2 s does not help: the deadline is that of the whole frame
                    await harness.send_and_be_read(client, part)
                    harness.advance(2_000)
                assert await client.is_closed()
        assert caplog.text.count("not complete after 5000 ms") == 2

    async def test_a_whole_frame_ends_the_deadline(self) -> None:
        async with serving(limits=NetworkLimits(frame_ms_max=5_000)) as harness:
            client = await harness.connect()
            data = frame(b"x" * 100_000, correlation_id=4)
            await harness.send_and_be_read(client, data[:50_000])
            harness.advance(4_000)
            client.send(data[50_000:])
            assert (await client.answer())[0] == 4
            harness.advance(20_000)
            client.send(frame(b"on", correlation_id=5))
            assert await client.answer() == (5, b"on")
            client.close()

    @pytest.mark.parametrize("size_bytes", [1_000, 100_000])
    async def test_a_connection_is_not_idle_while_a_request_comes(self, size_bytes: int) -> None:
        limits = NetworkLimits(frame_ms_max=5_000, idle_ms_max=1_000)
        async with serving(limits=limits) as harness:
            client = await harness.connect()
            data = frame(bytes(size_bytes), correlation_id=4)
            await harness.send_and_be_read(client, data[: size_bytes // 2])
            harness.advance(4_000)
            client.send(data[size_bytes // 2 :])
            assert (await client.answer())[0] == 4
            harness.advance(4_000)
            assert await client.is_closed(), "it has been idle"

    async def test_a_slow_line_may_take_longer_while_the_frame_makes_progress(self) -> None:
        async with serving(limits=NetworkLimits(frame_ms_max=5_000)) as harness:
            client = await harness.connect()
            data = frame(os.urandom(1_000_000), correlation_id=4)
            for begin in range(0, len(data), PROGRESS_BYTES):
                await harness.send_and_be_read(client, data[begin : begin + PROGRESS_BYTES])
                harness.advance(4_000)
            assert await client.answer() == (4, data[15:])

    @pytest.mark.parametrize("piece_bytes", [1, PROGRESS_BYTES // 8])
    async def test_a_large_frame_in_trickles_closes(
        self, piece_bytes: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with serving(limits=NetworkLimits(frame_ms_max=5_000)) as harness:
            client = await harness.connect()
            await harness.send_and_be_read(client, frame(bytes(1_000_000))[:400_000])
            began_ms = harness.ports.clock.monotonic_ms()
            while harness.server._connections:
                await harness.send_and_be_read(client, bytes(piece_bytes))
                harness.advance(1_000)
            assert harness.ports.clock.monotonic_ms() - began_ms < 12_000
        assert "not complete after 5000 ms" in caplog.text

    async def test_what_waits_unread_is_not_overdue_when_it_is_read_at_last(self) -> None:
        gate = asyncio.Event()

        async def late() -> list[object]:
            await gate.wait()
            return [b"late"]

        async with serving(
            lambda *_: OrderedAnswer(lambda _: late()), limits=NetworkLimits(frame_ms_max=5_000)
        ) as harness:
            client = await harness.connect()
            second = frame(b"second", correlation_id=2)
            client.send(frame(b"first", correlation_id=1) + second[:10])
            await until(lambda: any(each._paused for each in harness.server._connections))
            harness.advance(60_000)
            gate.set()
            assert await client.answer() == (1, b"late")
            harness.advance(1_000)
            client.send(second[10:])
            assert await client.answer() == (2, b"late")

    async def test_an_idle_connection_closes(self) -> None:
        async with serving(limits=NetworkLimits(idle_ms_max=10_000)) as harness:
            client = await harness.connect()
            client.send(frame())
            await client.answer()
            harness.advance(9_000)
            client.send(frame())
            await client.answer()
            harness.advance(9_000)
            client.send(frame())
            await client.answer()
            harness.advance(11_000)
            assert await client.is_closed()

    async def test_an_idle_connection_may_live_for_ever(self) -> None:
        async with serving(limits=NetworkLimits(idle_ms_max=NEVER_MS)) as harness:
            client = await harness.connect()
            harness.advance(1_000_000)
            client.send(frame(b"on"))
            assert await client.answer() == (0, b"on")

    async def test_a_client_that_never_reads_costs_little_and_is_closed(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        served = 0

        def raw(_: RequestContext, body: bytes) -> list[object]:
            nonlocal served
            served += 1
            return [bytes(100_000)]

        limits = NetworkLimits(write_ms_max=5_000, unsent_bytes_max=1_000_000, in_flight_max=1_000)
        async with serving(raw, limits=limits) as harness:
            host, port = harness.server.bound["PLAINTEXT"]
            reader, writer = await asyncio.open_connection(host, port, limit=1)
            client = Client(reader, writer)
            writer.transport.pause_reading()
            client.send(b"".join(frame(b"%d" % i) for i in range(10_000)))
            await harness.stops_reading()
            for _ in range(100):
                await asyncio.sleep(0)
            assert served < 500
            harness.advance(6_000)
            assert not harness.server._connections
            writer.transport.abort()
        assert "took no byte" in caplog.text

    async def test_a_client_that_reads_late_gets_everything(self) -> None:
        limits = NetworkLimits(unsent_bytes_max=200_000, in_flight_max=20)
        async with serving(lambda *_: [bytes(50_000)], limits=limits) as harness:
            client = await harness.connect()
            client.writer.transport.pause_reading()
            client.send(b"".join(frame(correlation_id=i) for i in range(1_000)))
            await harness.stops_reading()
            client.writer.transport.resume_reading()
            for i in range(1_000):
                assert (await client.answer())[0] == i
            client.close()

    async def test_answers_that_wait_for_the_peer_count_as_requests_in_flight(self) -> None:
        limits = NetworkLimits(in_flight_max=8, unsent_bytes_max=1 << 40)
        async with serving(lambda *_: [bytes(1 << 20)], limits=limits) as harness:
            client = await harness.connect()
            client.send(frame() * 100)
            await until(lambda: any(each._paused for each in harness.server._connections))
            [connection] = harness.server._connections
            assert len(connection._sender.queue) <= 2 * 8, "head and body of each answer"
            client.close()

    async def test_requests_without_answer_are_bounded(self) -> None:
        gates: list[asyncio.Future[list[object]]] = []

        def raw(_: RequestContext, body: bytes) -> Any:
            gates.append(asyncio.get_running_loop().create_future())
            return gates[-1]

        async with serving(raw, limits=NetworkLimits(in_flight_max=10)) as harness:
            client = await harness.connect()
            client.send(b"".join(frame(correlation_id=i) for i in range(35)))
            for round_ in range(35):
                wanted = min(35, 10 + round_)
                await until(lambda: len(gates) == wanted)  # noqa: B023 - awaited at once
                gates[round_].set_result([b"%d" % round_])
                assert await client.answer() == (round_, b"%d" % round_)
            client.close()


async def test_a_stop_lets_running_requests_end() -> None:
    gates: list[asyncio.Future[list[object]]] = []

    def raw(_: RequestContext, body: bytes) -> Any:
        gates.append(asyncio.get_running_loop().create_future())
        return gates[-1]

    async with serving(raw) as harness:
        idle, busy = await harness.connect(), await harness.connect()
        busy.send(frame(correlation_id=9))
        await until(lambda: bool(gates))
        stopping = asyncio.ensure_future(harness.server.stop(10_000))
        assert await idle.is_closed()
        gates[0].set_result([b"done"])
        assert await busy.answer() == (9, b"done")
        assert await busy.is_closed()
        await stopping


async def test_an_error_in_a_handler_closes_only_that_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raw(_: RequestContext, body: bytes) -> list[object]:
        raise RuntimeError("a mistake of ours")

    async with serving(raw) as harness:
        client = await harness.connect()
        client.send(frame())
        assert await client.is_closed()
    assert "a mistake of ours" in caplog.text
