"""Three controllers of Tidemark beside three of Apache Kafka: commits, losses, rest, size, start.

    python -m benchmarks.controllers [commits] [loss] [idle] [start] [wide] [broker]
        [--quick] [--no-kafka]

* commits: changes of a topic's config over the wire, one at a time and 100 at once. Each has its
  own connection, and the linger is 0 and 25 ms. The time is that until the answer, with the fsync
  on a majority. CPU is that of all three.
* loss: time from kill -9 or SIGTERM of the active controller to the first accepted change. The
  client asks the other two without a pause. Timeouts have their defaults.
* idle: without brokers and clients.
* start: a follower comes back to the two others, from the start of its process.
* broker: the start of a broker that hosts 1,000 of 100,000 partitions, see `controllers_broker`.
* wide: 100,000 partitions of three replicas, see `controllers_wide`.

Both kinds have their defaults, three processes on this machine and the same client, which shares
the cores with them. Compare only within one run. Kafka's heap is 256 MB, 1 GB in `wide`.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.controllers_broker import broker
from benchmarks.controllers_commits import commits
from benchmarks.controllers_loss import loss
from benchmarks.controllers_rest import idle, start
from benchmarks.controllers_wide import wide
from tests.support.kafka.tools import why_not
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import KafkaController
from tests.support.quorum.own_controllers import TidemarkController

Part = Callable[[type[Controller], Path], Awaitable[dict[str, float]]]


class WideKafkaController(KafkaController):
    """With room for very many partitions."""

    heap = "1g"


def wide_one(kind: type[Controller]) -> type[Controller]:
    """The kind with room for very many partitions."""
    return WideKafkaController if kind is KafkaController else kind


def parts_of(options: argparse.Namespace) -> dict[str, Part]:
    """Return the measurements by name."""
    quick = options.quick

    async def losses(kind: type[Controller], directory: Path) -> dict[str, float]:
        kills = options.kills if kind is TidemarkController else options.kafka_kills
        return await loss(kind, directory, kills=kills, stops=options.stops)

    async def wides(kind: type[Controller], directory: Path) -> dict[str, float]:
        return await wide(wide_one(kind), directory, options.partitions)

    return {
        "commits": lambda kind, directory: commits(kind, directory, 2 if quick else 6),
        "loss": losses,
        "idle": lambda kind, directory: idle(kind, directory, 5 if quick else 30),
        "start": lambda kind, directory: start(kind, directory, 2 if quick else 6),
        "wide": wides,
        "broker": lambda kind, directory: broker(
            wide_one(kind), directory, options.partitions, 1 if quick else 3
        ),
    }


def show(name: str, by_kind: dict[str, dict[str, float]]) -> None:
    """A row a figure, a column a kind."""
    figures = list(dict.fromkeys(one for found in by_kind.values() for one in found))
    for figure in figures:
        cells = [found.get(figure, float("nan")) for found in by_kind.values()]
        print(f"{name:8} {figure:58}" + "".join(f"{cell:12.3f}" for cell in cells), flush=True)


def add_kinds(parser: argparse.ArgumentParser) -> None:
    """Options by which a kind is excluded."""
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-tidemark", action="store_true")


def kinds_of(
    options: argparse.Namespace, kafka: type[Controller] = KafkaController
) -> dict[str, type[Controller]]:
    """Return the kinds of controllers to compare, by label."""
    kinds: dict[str, type[Controller]] = {}
    if not options.no_tidemark:
        kinds["tidemark"] = TidemarkController
    if not options.no_kafka:
        if (reason := why_not()) is not None:
            sys.exit(f"{reason}; --no-kafka leaves Kafka out")
        kinds["kafka"] = kafka
    return kinds


def measure(
    names: Iterable[str], parts: Mapping[str, Part], kinds: Mapping[str, type[Controller]]
) -> None:
    """Print the figures of these parts."""
    print(f"{'part':8} {'figure':58}" + "".join(f"{label:>12}" for label in kinds), flush=True)
    for name in names:
        found, loads, began = {}, [], time.monotonic()
        for label, kind in kinds.items():
            loads.append(f"{os.getloadavg()[0]:.1f}")
            with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
                found[label] = asyncio.run(parts[name](kind, Path(scratch) / label))
        show(name, found)
        took_s = time.monotonic() - began
        print(f"{name:8} took {took_s:.0f} s; load average before each: {' '.join(loads)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "part", nargs="*", metavar="PART", help="commits loss idle start wide broker"
    )
    parser.add_argument("--quick", action="store_true", help="small numbers, to try the program")
    parser.add_argument("--kills", type=int, help="of Tidemark's controllers, default 100")
    parser.add_argument("--kafka-kills", type=int, help="of Kafka's, default 12")
    parser.add_argument("--stops", type=int, help="of each, default 8")
    parser.add_argument("--partitions", type=int, help="in `wide` and `broker`, default 100000")
    add_kinds(parser)
    options = parser.parse_args()
    wrong = set(options.part) - {"commits", "loss", "idle", "start", "wide", "broker"}
    if wrong:
        sys.exit(f"no such part: {', '.join(sorted(wrong))}")
    usual = (3, 2, 2, 10_000) if options.quick else (100, 12, 8, 100_000)
    for name, value in zip(("kills", "kafka_kills", "stops", "partitions"), usual, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    parts = parts_of(options)
    measure(options.part or list(parts), parts, kinds_of(options))


if __name__ == "__main__":
    main()
