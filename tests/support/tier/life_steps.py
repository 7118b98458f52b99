"""Steps of a process that dies before or after one of them, and promises that none may break."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.disk import Disk


class DiedError(BaseException):
    """The tier process is gone: nothing of it runs on."""


class BrokenPromiseError(BaseException):
    """What no step may do; a pass that takes errors for the store's must not hide it."""


def must(holds: bool, what: str) -> None:
    """Fail the test where a step breaks a promise."""
    if not holds:
        raise BrokenPromiseError(what)


@dataclass
class Death:
    """Where a life ends.

    Attributes:
        at: number of the step, from 1; 0: it does not.
        is_done: right after that step; otherwise right before it.
    """

    at: int = 0
    is_done: bool = False


class Steps:
    """Counts what a life does to the outside, and ends it."""

    def __init__(self, death: Death) -> None:
        self.death = death
        self.names: list[str] = []
        self.is_dead = False
        self.before: dict[str, Callable[[], object]] = {}  # what somebody else does first, once

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise DiedError
        self.before.pop(name, lambda: None)()
        self.names.append(name)
        dies = len(self.names) == self.death.at
        if dies and not self.death.is_done:
            self._die()
        result = call()
        if dies:
            self._die()
        return result

    def _die(self) -> None:
        self.is_dead = True
        raise DiedError


class SteppedDisk(Disk):
    """Each change of a file is a step."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def atomic_write(self, path: Path, data: Any, *, durable: bool = True) -> None:
        must(durable, "a number is used only when it is fsynced")
        parent = super()
        self._steps(f"begin {path.name}", lambda: None)
        self._steps(f"write {path.name}", lambda: parent.atomic_write(path, data, durable=durable))

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        parent = super()
        self._steps(f"rename {target.name}", lambda: parent.rename(source, target, durable=durable))
