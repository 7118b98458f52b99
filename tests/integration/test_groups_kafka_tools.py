"""Kafka's tools for groups print the same about our broker as about Apache Kafka."""

from pathlib import Path

import pytest

from tests.support.groups import builds
from tests.support.groups.tools import transcript
from tests.support.groups.world import SETTINGS, World, kafka_world, our_world

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.long(seconds=120)]


def test_tools_print_the_same(tmp_path: Path) -> None:
    reason = builds.java_is_missing()
    if reason is not None:
        pytest.skip(reason)
    said: dict[str, list[tuple[str, str]]] = {}
    for made in (kafka_world, our_world):
        world, end = made(tmp_path / made.__name__, SETTINGS)
        try:
            said[world.name] = _transcript(world, tmp_path / "calls")
        finally:
            end()
    different = [
        f"{call}\n--- kafka\n{theirs}\n--- ours\n{mine}"
        for (call, theirs), (_, mine) in zip(said["kafka"], said["tidemark"], strict=True)
        if theirs != mine
    ]
    assert not different, "\n\n".join(different[:20])
    assert len(said["kafka"]) > 140


def _transcript(world: World, directory: Path) -> list[tuple[str, str]]:
    return transcript(world.ready(), directory)
