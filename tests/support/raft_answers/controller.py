"""One controller of Apache Kafka as a process, and raw requests to it."""

import asyncio
import contextlib
import re
import struct
from pathlib import Path
from typing import Any

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from tests.support.brokers.raw_client import build, header
from tests.support.kafka.tools import PEERS
from tests.support.raft_answers.directories import read_quorum_state

PATIENCE_S = 60
_DONE = re.compile(r"Completed transition to (\w+)\((.*)\) from ")
_EPOCH = re.compile(r"\bepoch=(\d+)")


async def wait_for(condition: Any, what: str) -> None:
    """Look every few milliseconds, a minute at most."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not condition():
        assert loop.time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.01)


class Controller:
    """The process, its log file, its directory."""

    def __init__(self, place: Path, port: int, settings: dict[str, str]) -> None:
        self.place = place
        self.logs = place / "logs"
        self.config = place / "server.properties"
        self.port = port
        place.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self.config.write_text("".join(lines))
        self._process: asyncio.subprocess.Process | None = None
        self._read = 0
        self._transitions: list[tuple[str, int, str]] = []

    async def start(self) -> None:
        lib = await self._library()
        log = (self.place / "server.log").open("wb")
        self._read, self._transitions = 0, []
        self._process = await asyncio.create_subprocess_exec(
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={PEERS / 'log4j2.properties'}",
            "-Dpeer.log.level=INFO",
            "-cp",
            f"{lib}/*",
            "kafka.Kafka",
            str(self.config),
            stdout=log,
            stderr=log,
        )
        log.close()
        await wait_for(self._listens, "the controller's listener")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, (self.place / "server.log").read_text()[-3000:]
        return bool(self.transitions) and b"Kafka Server started" in self._log()

    def _log(self) -> bytes:
        return (self.place / "server.log").read_bytes()

    async def _library(self) -> str:
        process = await asyncio.create_subprocess_exec(
            str(PEERS / "kafka"), "fetch", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        return out.decode().strip()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._process = None

    @property
    def transitions(self) -> list[tuple[str, int, str]]:
        """(state's name, epoch, all that Kafka's log says of it), oldest first."""
        text = self._log()[self._read :]
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            found = _DONE.search(line)
            if found:
                epoch = _EPOCH.search(found[2])
                assert epoch is not None, line
                name = found[1].removesuffix("State")
                self._transitions.append((name.lower(), int(epoch[1]), found[2]))
        return self._transitions

    async def died(self, patience_s: float) -> str | None:
        """Why the process ended by itself; None if it lives."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), patience_s)
            fatal = [line for line in self._log().decode().splitlines() if " ERROR " in line]
            return fatal[0].partition(" ERROR ")[2] if fatal else "ended"
        return None

    @property
    def role(self) -> str:
        return self.transitions[-1][0]

    @property
    def epoch(self) -> int:
        return self.transitions[-1][1]

    async def until(self, role: str, epoch: int | None = None) -> None:
        await wait_for(
            lambda: self.role == role and epoch in {None, self.epoch},
            f"{role} in epoch {epoch}, is {self.transitions[-1]}",
        )

    @property
    def quorum_state(self) -> dict[str, object] | None:
        return read_quorum_state(self.logs)

    async def ask(self, api: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        """Send one request on a connection of its own; None if it is ended without an answer."""
        message = codec.request(api)
        body = message.encode(build(message.cls, fields), version)
        frame = header(api, version) + body
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(struct.pack(">i", len(frame)) + frame)
            async with asyncio.timeout(PATIENCE_S):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            if writer is not None:
                writer.close()
        position = 4 + header_versions(api, version)[1]
        value, _ = codec.response(api).decode(data, version, position)
        return value
