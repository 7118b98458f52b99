"""Topics with three copies on three nodes of Tidemark, beside three of Apache Kafka.

    python -m benchmarks.replication [large] [middle] [small] [loss] [elected]
        [--quick] [--no-kafka] [--no-tidemark]

Replicas 3, acks=all, min.insync.replicas 2; all nodes are broker and controller, with their
defaults, and share this machine with the client. CPU is that of all nodes.

* large, middle: requests of 1 MiB and of 16 KiB to twelve partitions, four connections to each
  leader with five requests in flight each. The second of two rounds counts.
* small: one record of 100 bytes at a time.
* loss: kill -9 or SIGTERM of the leader's node, which is not the active controller. The figure is
  the longest time without an acknowledgement, for a client that tries all the time.
* elected: time from the kill of a node that leads 5,000 partitions until the other two lead them.

Compare only within one run. Kafka's heap is 1 GB each.
"""

import argparse
import sys

from benchmarks.controllers import Part, WideKafkaController, add_kinds, kinds_of, measure
from benchmarks.replication_loss import elected, loss
from benchmarks.replication_produce import flood, small


def parts_of(*, quick: bool) -> dict[str, Part]:
    """Return the measurements by name."""
    megabytes, rounds, partitions = (60, 1, 500) if quick else (1_000, 5, 5_000)
    return {
        "large": lambda kind, directory: flood(kind, directory, 1 << 20, megabytes),
        "middle": lambda kind, directory: flood(kind, directory, 16 << 10, megabytes // 2),
        "small": lambda kind, directory: small(kind, directory, 200 if quick else 2_000),
        "loss": lambda kind, directory: loss(kind, directory, kills=rounds, stops=rounds),
        "elected": lambda kind, directory: elected(kind, directory, partitions),
    }


def main() -> None:
    names = list(parts_of(quick=False))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", metavar="PART", help=" ".join(names))
    parser.add_argument("--quick", action="store_true", help="small numbers, to try the program")
    add_kinds(parser)
    options = parser.parse_args()
    if wrong := set(options.part) - set(names):
        sys.exit(f"no such part: {', '.join(sorted(wrong))}")
    kinds = kinds_of(options, kafka=WideKafkaController)
    measure(options.part or names, parts_of(quick=options.quick), kinds)


if __name__ == "__main__":
    main()
