"""Commands to the broker's control listener, by HTTP."""

import json
from typing import Any, Final

from tidemark.embedded.errors import BrokerError

TIMEOUT_S: Final = 610.0
"""A little more than the broker allows a command."""


def send(address: str, token: str, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Send one command and return its answer.

    Raises:
        BrokerError: the broker refuses it, or does not answer.
    """
    import http.client  # not before a command is sent: it imports much

    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request(
            "POST",
            f"/v1/{command}",
            json.dumps(arguments).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BrokerError(f"{command}: the broker does not answer: {error!r}") from error
    finally:
        connection.close()
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        answer = {"error": text.decode(errors="replace").strip()}
    if response.status != 200:
        raise BrokerError(f"{command}: {answer.get('error', answer)}")
    return answer
