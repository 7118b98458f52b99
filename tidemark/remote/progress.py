"""Progress bars on stderr, for a person at a terminal; nothing otherwise."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bars:
    """Phases of a run, one bar each."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def phase(self, name: str) -> Callable[[int, int | None], None]:
        """Begin a phase; tell what it returns how much is done, and of how much (None: unknown)."""
        task = self._shown.add_task(name, total=None)

        def advance(done: int, total: int | None) -> None:
            self._shown.update(task, completed=done, total=total)

        return advance


@contextmanager
def progress(*, disable: bool = False) -> Iterator[Bars]:
    """Bars that vanish at the end; none with `disable`, where stdout is the same terminal."""
    console = Console(stderr=True)
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=disable or not console.is_terminal,
    )
    with shown:
        yield Bars(shown)
