"""How often a test goes round: once for each kind of thing in `make test`, more in `make prove`.

`TIDEMARK_PROVE=1` asks for the full numbers everywhere. A test that goes round has a variable of
its own as well, which it prints with its seed: it replays a failure, and walks further.
"""

import os

from hypothesis import settings

IS_PROVING = os.environ.get("TIDEMARK_PROVE", "") not in ("", "0")


def rounds(variable: str, *, quick: int, full: int) -> int:
    """The number of rounds: that of the environment's `variable`, or `full` where we prove."""
    asked = os.environ.get(variable)
    return int(asked) if asked else (full if IS_PROVING else quick)


def use_hypothesis_profile() -> None:
    """Examples by the same knob. No deadline: workers share the cores with brokers."""
    settings.register_profile("quick", deadline=None)
    settings.register_profile("prove", deadline=None, max_examples=500)
    settings.load_profile("prove" if IS_PROVING else "quick")
