"""A story is a run of named steps: the same steps under all rules, and with one excluded."""

from collections.abc import Callable

from tests.model.explore import Label, Model, State


class NotOffered(Exception):
    """The rules do not let this step happen here."""


def text_of(label: Label) -> str:
    return " ".join(map(str, label))


def play(model: Model, story: str) -> State:
    """Go through a story, steps with `; ` between them.

    Raises:
        Broken: a promise is broken, and here.
        NotOffered: a step of it cannot be made.
    """
    state = model.start()
    for wanted in filter(None, story.split("; ")):
        state = _step(model, state, wanted)()
    return state


def play_to_rest(model: Model, story: str) -> None:
    """Go through a story; where nothing fair is left to do then, it must be a good rest.

    Raises:
        Broken: a promise is broken, and here.
        NotOffered: a step of it cannot be made.
    """
    state = play(model, story)
    if not any(
        model.is_fair(label) and make() not in (None, state) for label, make in model.steps(state)
    ):
        model.rest(state)


def _step(model: Model, state: State, wanted: str) -> Callable[[], State]:
    for label, make in model.steps(state):
        if text_of(label) == wanted:

            def stepped(make: Callable[[], State | None] = make) -> State:
                after = make()
                if after is None or not model.covers(after):
                    raise NotOffered(wanted)
                return after

            return stepped
    raise NotOffered(wanted)
