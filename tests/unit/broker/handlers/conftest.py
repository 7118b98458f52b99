"""A world of partitions for each test."""

from pathlib import Path

import pytest

from tests.support.worlds.data_plane import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
