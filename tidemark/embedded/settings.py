"""The configuration of a broker in a test suite: `tidemark dev`'s, and smaller."""

from collections.abc import Mapping
from pathlib import Path

from tidemark.dev.settings import HOST, dev_settings


def embedded_settings(
    data: Path, port: int, token: str, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the entries of a server.properties; those of the test come last.

    Args:
        data: directory for the log and for the remote tier.
        port: of the listener for clients.
        token: of the control listener.
        given: what the test sets.
    """
    settings = dev_settings(data, port) | {
        # Any port: nobody needs to know it.
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:0",
        "controller.quorum.bootstrap.servers": f"{HOST}:1",
        "tidemark.control.listener": f"{HOST}:0",
        "tidemark.control.token": token,
        # fewer files at the start
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    settings.pop("tidemark.http.listener")
    return settings | dict(given)
