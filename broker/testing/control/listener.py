"""The control listener: commands over HTTP, on loopback only, for clients with the token.

Off unless `tidemark.control.listener` has an address. A command can move the broker's clock or make
it fail on purpose: it is meant for tests, never for production.

    POST /v1/<command>, Authorization: Bearer <token>, a JSON object -> 200 and a JSON object,
    or 4xx and {"error": "one line"}.
"""

import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.observe.http import JSON, HttpAnswer, HttpLimits, HttpRequest, HttpServer
from broker.testing.control.commands import ControlCommands, ControlError
from kafka_protocol.errors import TidemarkError
from runtime.log_context import escape

log = logging.getLogger(__name__)

PREFIX: Final = "/v1/"
COMMAND_S_MAX: Final = 600.0
Stop = Callable[[], Awaitable[object] | None]
_LIMITS: Final = HttpLimits(body_bytes=1 << 20, answer_s=COMMAND_S_MAX, connections_per_ip=64)


class ControlListener:
    """Takes commands from the network and carries them out."""

    def __init__(self, address: tuple[str, int], token: str, commands: ControlCommands) -> None:
        """Listen on `address` once started; port 0 lets the system choose."""
        self._host = address[0]
        self._token = token.encode()
        self._commands = commands
        self._server = HttpServer(*address, self._respond, _LIMITS)

    @property
    def address(self) -> str:
        """host:port, once started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._server.port}"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The address cannot be bound.
        """
        await self._server.start()
        log.warning("taking commands, not for production: control_listener=%s", self.address)

    async def stop(self) -> None:
        """Stop listening; running commands are cancelled."""
        await self._server.stop()

    async def _respond(self, request: HttpRequest) -> HttpAnswer:
        try:
            return _json(200, await self._carry_out(request))
        except ControlError as error:
            return _json(error.status, _error(error))
        except TidemarkError as error:
            return _json(409, _error(error))

    async def _carry_out(self, request: HttpRequest) -> dict[str, Any]:
        if not self._is_known(request.headers.get("authorization", "")):
            raise ControlError("the Authorization header must be: Bearer <control token>", 401)
        if request.method != "POST":
            raise ControlError("commands are sent with POST", 405)
        if not request.path.startswith(PREFIX):
            raise ControlError(f"the path must be {PREFIX}<command>", 404)
        name = request.path.removeprefix(PREFIX)
        arguments = _arguments(request.body)
        log.info("control command: %s", escape(name, 100))
        return await self._commands.run(name, arguments)

    def _is_known(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        # Compared as bytes: text would have to be ASCII, and the header may be anything.
        is_same = hmac.compare_digest(token.strip().encode(), self._token)
        return is_same and scheme.lower() == "bearer"


async def open_control(
    config: BrokerConfig, commands: ControlCommands, on_stop: Callable[[Stop], None]
) -> str:
    """Start the control listener of a broker; returns its address, "" where it is off.

    Args:
        config: Settings.
        commands: The commands that it carries out.
        on_stop: Called with the function that ends it.

    Raises:
        ConfigError: The address cannot be bound.
    """
    address = config.control_listener
    if address is None:
        return ""
    listener = ControlListener(address, str(config.get("tidemark.control.token")), commands)
    try:
        await listener.start()
    except OSError as error:
        shown = f"{address[0]}:{address[1]}"
        raise ConfigError("tidemark.control.listener", shown, f"cannot listen: {error}") from error
    on_stop(listener.stop)
    return listener.address


def _arguments(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ControlError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise ControlError("the body must be a JSON object")
    return found


def _error(error: Exception) -> dict[str, Any]:
    return {"error": " ".join(str(error).split())}


def _json(status: int, content: dict[str, Any]) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(content).encode() + b"\n")
