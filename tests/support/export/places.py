"""A place in memory, and one around it where a process dies at a chosen step."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from pipeline.jobs.place import Place


class Killed(BaseException):
    """The process is dead; nothing of it may catch this."""


class MemoryPlace:
    """See `Place`."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return "memory"

    def names(self, directory: str) -> list[str]:
        prefix = f"{directory}/"
        below = [path[len(prefix) :] for path in self.stored if path.startswith(prefix)]
        return sorted({path.split("/")[0] for path in below})

    def files(self, directory: str) -> dict[str, int]:
        prefix = f"{directory}/"
        return {p[len(prefix) :]: len(d) for p, d in self.stored.items() if p.startswith(prefix)}

    def read(self, path: str) -> bytes:
        if path not in self.stored:
            raise FileNotFoundError(path)
        return self.stored[path]

    def create(self, path: str, data: bytes) -> bool:
        return self.stored.setdefault(path, data) is data

    def move(self, source: str, target: str) -> None:
        if source in self.stored:
            self.stored[target] = self.stored.pop(source)

    def remove(self, path: str) -> None:
        for one in [p for p in self.stored if p == path or p.startswith(f"{path}/")]:
            del self.stored[one]

    @contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        file = io.BytesIO()
        yield file
        self.stored[path] = file.getvalue()

    def location(self, path: str) -> str:
        return f"memory://{path}"


class Steps:
    """Counts what a process does to the world and may do something at one step.

    `at` is called before or after step number `step` (from 0), in the middle of the process.
    """

    def __init__(
        self, step: int = -1, at: Callable[[], None] | None = None, *, after: bool = False
    ):
        self._step, self._at, self._after = step, at, after
        self.taken = 0

    def run(self, do: Callable[..., Any], *args: Any) -> Any:
        here = self.taken == self._step
        self.taken += 1
        if here and not self._after:
            self._happen()
        result = do(*args)
        if here and self._after:
            self._happen()
        return result

    def _happen(self) -> None:
        assert self._at is not None
        self._at()


class SteppedPlace:
    """A place whose every call is a step."""

    def __init__(self, place: Place, steps: Steps) -> None:
        self._place, self._steps = place, steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._place, name)
        if name in ("url", "location"):
            return found
        if name == "writing":
            return self._writing
        return lambda *args: self._steps.run(found, *args)

    @contextmanager
    def _writing(self, path: str) -> Iterator[BinaryIO]:
        file = io.BytesIO()
        yield file

        def store() -> None:
            with self._place.writing(path) as real:
                real.write(file.getvalue())

        self._steps.run(store)
