"""Options that `tidemark produce`, `tidemark consume` and `tidemark cat` share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from runtime.clock import SystemClock
from runtime.override import override
from tidemark.records.lines import LineError, unescaped
from tidemark.records.places import Place, PlaceError, parse_place
from tidemark.remote.options import WrongOptionError

F = TypeVar("F", bound=Callable[..., Any])


class PlaceType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """A place in a topic: see `tidemark.records.places`."""

    name = "place"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        try:
            return parse_place(str(value), SystemClock().wall_ms())
        except PlaceError as error:
            self.fail(str(error))


class SeparatorType(click.ParamType):  # type: ignore[type-arg]  # as above
    r"""Characters between a key and a value; `\t` is a tab."""

    name = "separator"

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> bytes:
        try:
            return value if isinstance(value, bytes) else unescaped(str(value))
        except LineError as error:
            self.fail(str(error))


def topic_options(function: F) -> F:
    """TOPIC or `--topic`, given to the command as `topic_argument` and `topic_option`."""
    argument = click.argument("topic_argument", metavar="[TOPIC]", required=False)
    option = click.option(
        "-t", "--topic", "topic_option", metavar="TOPIC", help="The same as TOPIC."
    )
    return argument(option(function))


def topic_of(topic_argument: str | None, topic_option: str | None) -> str:
    """The topic, which is given in one way.

    Raises:
        WrongOptionError: in none, or in two that differ.
    """
    if topic_argument is None and topic_option is None:
        raise WrongOptionError("name a topic: TOPIC, or --topic TOPIC")
    if topic_option is not None and topic_argument not in (None, topic_option):
        raise WrongOptionError(f"two topics are named: {topic_argument} and {topic_option}")
    return topic_argument or topic_option or ""


def count_option(function: F) -> F:
    """`--max-messages`, given to the command as `count`."""
    return click.option(
        "-n", "-c", "--max-messages", "count", type=click.IntRange(min=1), metavar="N",
        help="End after so many records.",
    )(function)  # fmt: skip


def partitions_option(function: F) -> F:
    """`--partition`, given to the command as `partitions`."""
    return click.option(
        "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, metavar="N",
        help="Only this; repeatable.",
    )(function)  # fmt: skip


def property_option(function: F) -> F:
    """`--command-property`, given to the command as `properties`."""
    return click.option(
        "-X", "--command-property", "properties", metavar="K=V", multiple=True,
        help="A property of the Kafka client; repeatable, wins over the file.",
    )(function)  # fmt: skip
