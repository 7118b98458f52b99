"""`tidemark directories drain`: the replicas of a log directory go to the others of its broker."""

import sys
import time
from itertools import islice
from pathlib import Path
from typing import Final

import click

from kafka_client.blocking import ClusterError, UnreachableError
from kafka_protocol.errors import ErrorCode
from tidemark.cluster.asking import BrokerState, Cluster, LogDirectory
from tidemark.cluster.draining import found_directory, serving, targets
from tidemark.cluster.moving import Place
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import cluster_options
from tidemark.remote.segments_view import size_text

_PAUSE_S: Final = 0.5
_AT_ONCE: Final = 100
_INTERRUPTED: Final = 130


@click.command("drain", short_help="Move all replicas to the other directories of a broker.")
@click.argument("path", metavar="PATH")
@click.option(
    "--broker", type=click.IntRange(min=0), metavar="ID",
    help="The broker that is meant, where several have a directory of that path.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would move, and change nothing.")
@cluster_options
def drain_command(
    path: str, *, broker: int | None, dry_run: bool, bootstrap: str, command_config: Path | None
) -> None:
    """Move all replicas off log directory PATH, and wait until it has none.

    PATH is as in log.dirs of the broker, which runs. Each replica goes to the directory that has
    the fewest bytes; it is read and written meanwhile. The command may be ended at any time, and
    given again: what has begun continues, also after a restart of the broker.

    Then take PATH out of log.dirs and restart the broker. Until then new partitions may be made
    there; give the command again right before.

    Exit code 0: the directory has no replica. 1: replicas are left, and named.
    """
    with client_settings(command_config).client(bootstrap) as client:
        cluster = Cluster(client)
        asked = serving(cluster.brokers(), broker)
        known = {one.id: cluster.log_directories(one) for one in asked}
        number = found_directory(path, known, broker)
        (one,) = (each for each in asked if each.id == number)
        wanted = targets(path, known[number])
        for target in sorted(set(wanted.values())):
            count = sum(each == target for each in wanted.values())
            click.echo(f"{path} -> {target}: {count} replica(s)")
        if dry_run:
            return
        try:
            failed = _Draining(cluster, one, path).run()
        except KeyboardInterrupt:
            click.echo(
                "interrupted: what has begun continues; the same command shows how far it is"
            )
            sys.exit(_INTERRUPTED)
    if failed:
        names = ", ".join(f"{topic}-{index}" for topic, index in sorted(failed))
        click.echo(
            f"{len(failed)} replica(s) stay in {path}: {names}; the log of broker {number} says "
            "why: give the command again when that is repaired",
            err=True,
        )
        sys.exit(1)
    click.echo(
        f"{path} has no replica: take it out of log.dirs of broker {number} and restart it. Until "
        "then new partitions may be made there"
    )


class _Draining:
    """Has replicas move, and says how far they are."""

    def __init__(self, cluster: Cluster, broker: BrokerState, path: str) -> None:
        self._cluster, self._broker, self._path = cluster, broker, path
        self._asked: set[Place] = set()
        self._failed: set[Place] = set()
        self._shown = ""

    def run(self) -> set[Place]:
        """Return when none is left but those whose move failed."""
        while True:
            try:
                if not self._look():
                    return self._failed
            except UnreachableError as error:
                self._say(f"broker {self._broker.id} does not say how far it is: {error}")
            time.sleep(_PAUSE_S)

    def _look(self) -> bool:
        """Ask for what is not on its way; False: nothing is left to wait for."""
        directories = self._cluster.log_directories(self._broker)
        held = {one.path: one for one in directories}
        drained = held.get(self._path)
        if drained is None or drained.error:
            raise ClusterError(f"{self._path} does not work any more: its replicas are offline")
        arriving = {place: size for one in directories for place, size in one.arriving.items()}
        left = drained.replicas.keys() - self._failed
        self._failed |= {one for one in left & self._asked if one not in arriving}
        if not left:
            return False
        wanted = targets(self._path, directories)
        some = (one for one in wanted.items() if one[0] not in self._failed)
        new = dict(islice(some, _AT_ONCE))  # each is made durable before there is an answer
        refused = self._cluster.move_to_directories(self._broker, new) if new else {}
        self._asked |= new.keys() | left & arriving.keys()
        for (topic, index), code in refused.items():
            if code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REPLICA_NOT_AVAILABLE):
                name = ErrorCode.of(code).name
                click.echo(f"{topic}-{index}: refused: {name}", err=True)
        self._tell(drained, arriving, len(left))
        return bool(drained.replicas.keys() - self._failed)

    def _tell(self, drained: LogDirectory, arriving: dict[Place, int], left: int) -> None:
        going = [
            (size, arriving[place]) for place, size in drained.replicas.items() if place in arriving
        ]
        copied, whole = sum(done for _, done in going), sum(size for size, _ in going)
        text = f"{left} replica(s) left, {size_text(sum(drained.replicas.values()))}"
        if going:
            text += f"; {len(going)} on their way: {size_text(copied)} of {size_text(whole)}"
        self._say(text)

    def _say(self, text: str) -> None:
        if text != self._shown:
            click.echo(text)
        self._shown = text
