"""Every error that Tidemark raises on purpose stands below `TidemarkError`."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kafka_protocol.errors import KafkaError
from rsm_plugins.api import RetriableRemoteStorageError
from tidemark.errors import ConfigError, TidemarkError

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "kafka_protocol", "runtime", "kafka_client", "local_log", "rsm_plugins", "rlmm",
    "metadata_topic", "rlm", "broker", "pipeline", "pyspark_tidemark", "tidemark",
)  # fmt: skip
BUILTIN = {"Exception", "ValueError", "OSError", "RuntimeError", "LookupError", "KeyError"}
OF_A_SIMULATION = {"PowerCutError"}
OF_A_TEST_SUITE = {"BrokerError"}
"""Raised in a process that imports no package of ours, and so not the one with `TidemarkError`."""


def lonely_errors(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text()).body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        is_lonely = bool(bases) and bases[0] in BUILTIN
        if is_lonely and node.name not in {"TidemarkError"} | OF_A_SIMULATION | OF_A_TEST_SUITE:
            yield f"{file.relative_to(ROOT)}: {node.name}"


def test_no_public_error_stands_alone() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert not [error for file in files for error in lonely_errors(file)]


def test_a_builtin_error_is_still_what_it_was() -> None:
    """Callers that catch `ValueError` continue to catch a wrong setting."""
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, TidemarkError)
    assert issubclass(KafkaError, TidemarkError)
    assert issubclass(RetriableRemoteStorageError, TidemarkError)
