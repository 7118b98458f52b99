"""Which clients there are, how each is started, and what each can do."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.brokers.process import ROOT
from tests.support.groups import builds

FOLDER = ROOT / "tests/support/clients"
STATIC, COOPERATIVE, PATTERN = "static", "cooperative", "pattern"
COMMIT, ADMIN, REFUSAL, METADATA = "commit", "admin", "refusal", "metadata"
FENCED, GIVES_UP, COMES_BACK = "fenced", "gives-up", "comes-back"


@dataclass(frozen=True)
class Client:
    """One library.

    Attributes:
        command: what starts its program, given the bootstrap address.
        can: what it can: scenarios that need more are not played with it.
        why_not: why it cannot run here, or None.
    """

    name: str
    command: Callable[[str], list[str]]
    can: frozenset[str]
    why_not: Callable[[], str | None] = lambda: None


def _python(module: str) -> Callable[[str], list[str]]:
    return lambda bootstrap: [
        sys.executable,
        "-m",
        f"tests.support.clients.{module}.member",
        bootstrap,
    ]


def _kcat_is_missing() -> str | None:
    return None if shutil.which("kcat") else "kcat is not installed"


ALL = frozenset(
    {STATIC, COOPERATIVE, PATTERN, COMMIT, ADMIN, REFUSAL, METADATA}
    | {FENCED, GIVES_UP, COMES_BACK}
)

CLIENTS = {
    client.name: client
    for client in (
        Client("confluent-kafka", _python("confluent"), ALL),
        Client("aiokafka", _python("aiokafka_client"), ALL - {COOPERATIVE, REFUSAL, FENCED}),
        Client("kafka-python", _python("kafka_python"), ALL - {PATTERN, FENCED}),
        Client("kcat", _python("kcat"), frozenset({STATIC, PATTERN}), _kcat_is_missing),
        Client("java", builds.java_command, ALL, builds.java_is_missing),
        Client(
            "sarama",
            builds.go_command("sarama"),
            ALL - {COOPERATIVE, PATTERN},
            builds.go_is_missing,
        ),
        Client("franz-go", builds.go_command("franz"), ALL, builds.go_is_missing),
        Client(
            "kafkajs",
            builds.node_command("kafkajs"),
            frozenset({COMMIT, ADMIN, METADATA, GIVES_UP, COMES_BACK}),
            builds.node_is_missing,
        ),
        Client(
            "platformatic",
            builds.node_command("platformatic"),
            frozenset({COMMIT, ADMIN}),
            builds.node_is_missing,
        ),
    )
}
"""All of them by name; what each cannot do: docs/groups-beside-kafka.md."""
