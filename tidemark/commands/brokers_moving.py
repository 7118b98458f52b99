"""`tidemark brokers drain` and `add`: replicas leave a broker, or go to one that is new."""

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from kafka_client.blocking import ClusterError, UnreachableError
from kafka_protocol.errors import ErrorCode
from tidemark.cluster.asking import BrokerState, Cluster, PartitionState, Reassigning, Refusal
from tidemark.cluster.moving import Facts, Move, Place, drained, filled, summary
from tidemark.cluster.replication import progress
from tidemark.cluster.throttling import Arrival, Throttle
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import cluster_options
from tidemark.remote.segments_view import size_text

_PAUSE_S: Final = 0.5
_REPORTED_S: Final = 30.0
_AT_ONCE: Final = 20
_INTERRUPTED: Final = 130

_dry_run = click.option("--dry-run", is_flag=True, help="Show what would move, and change nothing.")
_at_once = click.option(
    "--at-once", type=click.IntRange(min=1), default=_AT_ONCE, show_default=True, metavar="N",
    help="How many partitions move at a time.",
)  # fmt: skip


_throttle = click.option(
    "--throttle", type=click.IntRange(min=1), metavar="BYTES",
    help="Bytes a second that all replicas that come to a broker may copy together.",
)  # fmt: skip


@click.command("drain")
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@_dry_run
@_at_once
@_throttle
@cluster_options
def drain_command(
    broker_id: int,
    *,
    dry_run: bool,
    at_once: int,
    throttle: int | None,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Move all replicas of broker ID to others, and wait until it has none.

    Each replica goes to a rack that has no other replica of its partition, if there is one, and
    there to the emptiest broker. Topics are read and written meanwhile. The command may be ended at
    any time, and given again: what has begun continues. The broker may be down; what it has is then
    copied from the leaders. A throttle ends with the command.

    Exit code 0: the broker has no replica. 1: partitions are left, and named.
    """
    with client_settings(command_config).client(bootstrap) as client:
        cluster = Cluster(client)
        refused: list[Refusal] = []
        try:
            while not refused:
                facts = _facts(cluster, broker_id)
                moves, begun = drained(broker_id, facts), facts.leaving(broker_id)
                if not moves and not begun:
                    break
                _show(moves)
                if begun:
                    click.echo(f"{len(begun)} partition(s) are leaving broker {broker_id} already")
                if dry_run:
                    return
                with Throttle(cluster, throttle) as slowly:
                    refused = _Moving(cluster, facts, moves, begun, slowly).run(at_once)
        except KeyboardInterrupt:
            _interrupted()
    _end(refused)
    click.echo(
        f"broker {broker_id} has no replica: it can be stopped. While it serves, new topics may "
        "get replicas there"
    )


@click.command("add")
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@_dry_run
@_at_once
@_throttle
@cluster_options
def add_command(
    broker_id: int,
    *,
    dry_run: bool,
    at_once: int,
    throttle: int | None,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Move replicas to broker ID until it is as full as the others.

    They come from the fullest brokers, large ones first; no partition is in fewer racks than
    before. Topics are read and written meanwhile. The command may be ended at any time, and given
    again: what has begun continues. A throttle ends with the command.

    Exit code 0: done. 1: partitions were refused, and are named.
    """
    with client_settings(command_config).client(bootstrap) as client:
        cluster = Cluster(client)
        facts = _facts(cluster, broker_id)
        if facts.brokers[broker_id].is_fenced:
            raise ClusterError(f"broker {broker_id} is fenced: start it; nothing was changed")
        moves, begun = filled(broker_id, facts), facts.arriving(broker_id)
        if not moves and not begun:
            click.echo(f"broker {broker_id} gets nothing: no move would make the others less full")
            return
        _show(moves)
        if begun:
            click.echo(f"{len(begun)} partition(s) are moving to broker {broker_id} already")
        if dry_run:
            return
        refused: list[Refusal] = []
        try:
            with Throttle(cluster, throttle) as slowly:
                refused = _Moving(cluster, facts, moves, begun, slowly).run(at_once)
        except KeyboardInterrupt:
            _interrupted()
    _end(refused)
    click.echo(f"broker {broker_id} has its share")


def _facts(cluster: Cluster, broker_id: int) -> Facts:
    brokers = cluster.brokers()
    if broker_id not in brokers:
        ids = ", ".join(map(str, brokers))
        raise ClusterError(f"there is no broker {broker_id}; the cluster has {ids}")
    going, everything = cluster.reassigning(), list(cluster.partitions())
    sizes = {}
    for one in brokers.values():
        if not one.is_fenced:
            with suppress(UnreachableError):  # it has just ended: what it has is not known
                sizes[one.id] = cluster.replica_sizes(one)
    return Facts(everything, brokers, sizes, going)


class _Moving:
    """Carries a plan out, so many partitions at a time, and says how far it is."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        moves: Sequence[Move],
        begun: Mapping[Place, Reassigning],
        throttle: Throttle,
    ) -> None:
        """Nothing is asked for yet.

        Args:
            cluster: is asked.
            facts: of which the plan was made.
            moves: the plan.
            begun: what continues already, and is waited for.
            throttle: holds back what moves.
        """
        self._cluster, self._throttle = cluster, throttle
        self._left = deque(moves)
        self._going: dict[Place, Reassigning] = dict(begun)
        self._wanted = {
            (one.topic, one.index): facts.settled(one)
            for one in facts.everything
            if (one.topic, one.index) in begun
        }
        self._moving: dict[Place, Move] = {}
        self._count = len(moves)
        self._bytes = sum(one.size_bytes for one in moves)
        self._refused_bytes = 0
        self._shown = ""
        self._refused: list[Refusal] = []

    def run(self, at_once: int) -> list[Refusal]:
        """Return when all has moved, or was refused: why."""
        # Errors end the command: nothing was changed.
        self._throttle.hold(
            Arrival(*place, each) for place, one in self._going.items() for each in one.adding
        )
        self._begin(at_once)
        while self._left or self._going:
            try:
                brokers, going = self._cluster.brokers(), self._cluster.reassigning()
                self._going = {one: going[one] for one in self._going if one in going}
                self._moving = {one: self._moving[one] for one in self._moving if one in going}
                self._begin(at_once)
                self._say(self._progress(brokers))
            except ClusterError as error:
                self._say(f"its progress is unknown: {error}")
            if self._left or self._going:
                time.sleep(_PAUSE_S)
        self._until_reported()
        return self._refused

    def _until_reported(self) -> None:
        """Wait until brokers say what the controller has decided: the next plan is made of that.

        Not for ever: somebody else may move the same partitions.
        """
        until = time.monotonic() + _REPORTED_S
        while time.monotonic() < until:
            with suppress(ClusterError):
                if not any(self._is_old(one) for one in self._cluster.partitions()):
                    return
            time.sleep(_PAUSE_S)

    def _is_old(self, one: PartitionState) -> bool:
        wanted = self._wanted.get((one.topic, one.index))
        return wanted is not None and set(wanted) != set(one.replicas)

    def _begin(self, at_once: int) -> None:
        some = [self._left[at] for at in range(min(at_once - len(self._going), len(self._left)))]
        if not some:
            return
        self._throttle.hold(Arrival(one.wanted.topic, one.wanted.index, one.target) for one in some)
        refused = {
            (one.topic, one.index): one
            for one in self._cluster.reassign([one.wanted for one in some])
        }
        for one in some:
            self._left.popleft()
            place = one.wanted.topic, one.wanted.index
            if place not in refused:
                self._moving[place] = one
                self._wanted[place] = one.wanted.replicas
                self._going[place] = Reassigning((one.target,), (one.source,))
            elif refused[place].code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted meanwhile
                self._refused.append(refused[place])
                self._refused_bytes += one.size_bytes
                click.echo(f"{one}: refused: {refused[place].text}", err=True)

    def _progress(self, brokers: dict[int, BrokerState]) -> str:
        outstanding = [*self._left, *self._moving.values()]
        done = self._count - len(outstanding) - len(self._refused)
        left_bytes = sum(one.size_bytes for one in outstanding)
        done_bytes = self._bytes - self._refused_bytes - left_bytes
        text = (
            f"{done} of {self._count} replica(s) moved, {size_text(done_bytes)} of "
            f"{size_text(self._bytes)}"
        )
        return f"{text}; {progress(self._going, brokers)}" if self._going else text

    def _say(self, text: str) -> None:
        if text != self._shown:
            click.echo(text)
        self._shown = text


def _show(moves: Sequence[Move]) -> None:
    for source, target, count, size in summary(moves):
        click.echo(f"broker {source} -> {target}: {count} replica(s), {size_text(size)}")


def _interrupted() -> None:
    click.echo("interrupted: what has begun continues; the same command shows how far it is")
    sys.exit(_INTERRUPTED)


def _end(refused: Sequence[Refusal]) -> None:
    if refused:
        click.echo(f"{len(refused)} partition(s) were refused and stay where they are", err=True)
        sys.exit(1)
