"""A broker that lost its disk, and leaders that were lost, with topics in the remote tier.

    python -m benchmarks.rebuild [tiered] [full] [failover] [added] [added-full] [throttled]
        [--mb 1000] [--failover 1000] [--rate 20] [--kafka]

One controller and three brokers, whose remote tiers share a directory; topics have three replicas.
All share this machine with the client.

* tiered: about 98 of 100 bytes of a topic are in the remote tier alone. A broker is killed and its
  disk is lost; an empty one takes its place, and is measured until it is in sync everywhere. Copied
  from brokers are all bytes that it replicated, those of the tier's metadata topic too. Beside it
  100 records a second are written to partitions of the other two brokers, acks=all.
* full: the same with a topic of the same size that is not tiered.
* failover: the leader of so many tiered partitions is killed by kill -9 just after a segment of
  each was closed. Two more records are written to each as soon as another broker takes them. Two
  copies are measured: that of the segments left over, and that of the new leader's first segment.
* added: a topic as in `tiered`, but with replicas on two of the brokers. A reassignment gives each
  partition one more replica on the third broker, which is measured in the same way.
* added-full: the same with a topic that is not tiered.
* throttled: that, with `follower.replication.throttled.rate` at so many megabytes a second.

With --kafka the same beside Apache Kafka and its LocalTieredStorage. Compare only within one run.
"""

import argparse
import sys

from benchmarks.controllers import Part, measure
from benchmarks.rebuild_disk import rebuild
from benchmarks.rebuild_failover import PARTITIONS_A_TOPIC, failover
from benchmarks.rebuild_moves import added
from tests.support.kafka.tools import why_not
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import KafkaController
from tests.support.quorum.own_controllers import TidemarkController


def parts_of(megabytes: int, partitions: int, rate_mb: int) -> dict[str, Part]:
    """Return the measurements by name."""
    return {
        "tiered": lambda kind, directory: rebuild(kind, directory, megabytes, is_tiered=True),
        "full": lambda kind, directory: rebuild(kind, directory, megabytes, is_tiered=False),
        "failover": lambda kind, directory: failover(kind, directory, partitions),
        "added": lambda kind, directory: added(kind, directory, megabytes, is_tiered=True),
        "added-full": lambda kind, directory: added(kind, directory, megabytes, is_tiered=False),
        "throttled": lambda kind, directory: added(
            kind, directory, megabytes, is_tiered=False, rate_mb=rate_mb
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", metavar="PART", help="see above; none: all")
    parser.add_argument("--mb", type=int, default=1_000, help="of the topic, one copy")
    parser.add_argument("--failover", type=int, default=1_000, help="partitions: below 100, or n00")
    parser.add_argument("--rate", type=int, default=20, help="of `throttled`, in MB a second")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka, too")
    parser.add_argument("--no-tidemark", action="store_true")
    options = parser.parse_args()
    parts = parts_of(options.mb, options.failover, options.rate)
    if wrong := set(options.part) - set(parts):
        sys.exit(f"no such part: {', '.join(sorted(wrong))}")
    if options.failover > PARTITIONS_A_TOPIC and options.failover % PARTITIONS_A_TOPIC:
        sys.exit(f"--failover {options.failover}: below 100, or a multiple of 100")
    kinds: dict[str, type[Controller]] = {}
    if not options.no_tidemark:
        kinds["tidemark"] = TidemarkController
    if options.kafka:
        if (reason := why_not()) is not None:
            sys.exit(reason)
        kinds["kafka"] = KafkaController
    measure(options.part or list(parts), parts, kinds)


if __name__ == "__main__":
    main()
