"""Plays one scenario, or skips it where its client cannot run here."""

from collections.abc import Callable

import pytest

from tests.support.groups.scenarios import Stage


def played(stage: Stage, scenario: Callable[[Stage], None]) -> None:
    """The scenario; no process is left."""
    reason = stage.client.why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        scenario(stage)
    finally:
        stage.close()
