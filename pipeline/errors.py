"""Errors for users of the pipeline. Every message is one line: thing, limit and remedy.

Errors travel from executors to the driver as pickles, so each is made of its message alone.
"""

from collections.abc import Callable, Generator
from functools import wraps
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from kafka_protocol.errors import TidemarkError
from runtime.version import install_command

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

SKIP_LOST: Final = (
    "failOnDataLoss=false in Spark, fail_on_data_loss=False in a scan, --skip-lost on the command"
    " line"
)
"""How each of the readers is told to continue without what is lost."""


class PipelineError(TidemarkError):
    """Reading or writing the tiered log failed."""


class OptionError(PipelineError, ValueError):
    """An option is unknown, wrong, or contradicts another one."""


class DataLossError(PipelineError):
    """Offsets that were asked for are no longer there, or never were.

    The option `failOnDataLoss=false` skips and counts them instead.
    """


class DamagedDataError(PipelineError):
    """Stored bytes are not what was copied; names the object, the offset and the reason."""


class StoreUnreachableError(PipelineError):
    """The store does not answer from here, or refuses the credentials of this process."""


class MissingPackageError(PipelineError, ImportError):
    """A package of an extra is not installed; says which command installs it."""


class TopicReplacedError(DataLossError):
    """A topic was deleted and made again while it was read: its offsets mean other records now."""


def without_stack(function: F) -> F:
    """The same function at an edge, whose errors for users come without the calls below it.

    Spark prints the whole stack of an error, and its last line is what a user must find.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TidemarkError as error:
            raise error.with_traceback(None) from None

    return call  # type: ignore[return-value]


def items_without_stack(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """The same items; errors as of `without_stack`. Closing it closes `items`."""
    try:
        yield from items
    except TidemarkError as error:
        raise error.with_traceback(None) from None


def need(extra: str, *packages: str) -> None:
    """Look whether packages can be imported here; nothing is imported.

    Args:
        extra: of `tidemark-broker`, brings them.
        packages: top-level names.

    Raises:
        MissingPackageError: says what to install.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise MissingPackageError(
            f"{' and '.join(missing)} {are} not installed here: {install_command(extra)}"
        )
