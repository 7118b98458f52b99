"""A story is a run of named steps: the same steps under all rules, and with one left out."""

from collections.abc import Callable

from tests.model.replication.explore import Label, State
from tests.model.replication.world import Replication


class NotOffered(Exception):
    """The rules do not let this step happen here."""


def text_of(label: Label) -> str:
    return " ".join(map(str, label))


def play(model: Replication, story: str) -> State:
    """Go through a story, steps with `; ` between them.

    Raises:
        Broken: a promise is broken, and here.
        NotOffered: a step of it cannot be made.
    """
    state = model.start()
    for wanted in story.split("; "):
        state = _step(model, state, wanted)()
    return state


def _step(model: Replication, state: State, wanted: str) -> Callable[[], State]:
    for label, make in model.steps(state):
        if text_of(label) == wanted:

            def stepped(make: Callable[[], State | None] = make) -> State:
                after = make()
                if after is None or not model.covers(after):
                    raise NotOffered(wanted)
                return after

            return stepped
    raise NotOffered(wanted)
