"""What is wrong with a seed: always with its file, mostly with line and field."""

from pathlib import Path

from kafka_protocol.errors import TidemarkError


class SeedError(TidemarkError):
    """A seed cannot be used; the message names file, line, field and what is allowed."""


def wrong(path: Path, line: int, text: str) -> SeedError:
    """An error at a line of a file, counted from 1."""
    return SeedError(f"{path}:{line}: {text}")
