"""`tidemark brokers`: can a broker be stopped now? Its replicas come and go."""

import sys
from pathlib import Path
from typing import Final

import click

from kafka_client.blocking import BlockingClient, ClusterError
from runtime.clock import SystemClock
from tidemark.cluster.asking import Cluster
from tidemark.cluster.replication import endangered
from tidemark.commands.brokers_moving import add_command, drain_command
from tidemark.quorum.asking import Limits, QuorumAsker
from tidemark.quorum.client_settings import ClientSettings, client_settings
from tidemark.quorum.description import QuorumError
from tidemark.remote.options import cluster_options, json_option, print_json
from tidemark.status.report import endangered_quorum

_SHOWN_MAX: Final = 20
_UNKNOWN: Final = 2


@click.group("brokers")
def command() -> None:
    """Say what a broker is needed for; move replicas to it, or away."""


command.add_command(drain_command)
command.add_command(add_command)


@command.command("safe-to-stop")
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@click.option(
    "--ignore-one-replica", is_flag=True,
    help="Partitions of one replica do not count: no other broker could lead them.",
)  # fmt: skip
@json_option
@cluster_options
def safe_to_stop_command(
    broker_id: int,
    *,
    ignore_one_replica: bool,
    as_json: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Say whether broker ID can be stopped now.

    No partition may be without a leader then, or have fewer in-sync replicas than
    min.insync.replicas; if it is a controller, too, most voters have to be left.

    Exit code 0: yes. 1: no; the partitions are named. 2: it is unknown, for instance because there
    is no such broker.
    """
    settings = client_settings(command_config)
    try:
        with settings.client(bootstrap) as client:
            reasons = _reasons(client, settings, broker_id, may_stop_lone=ignore_one_replica)
    except (ClusterError, QuorumError) as error:
        click.echo(f"tidemark: {error}", err=True)
        sys.exit(_UNKNOWN)
    if as_json:
        print_json({"broker": broker_id, "is_safe": not reasons, "reasons": reasons})
        sys.exit(1 if reasons else 0)
    if not reasons:
        click.echo(f"yes: broker {broker_id} can be stopped")
        return
    click.echo(f"no: without broker {broker_id}")
    for line in reasons[:_SHOWN_MAX]:
        click.echo(f"  {line}")
    if len(reasons) > _SHOWN_MAX:
        click.echo(f"  and {len(reasons) - _SHOWN_MAX} more")
    sys.exit(1)


def _reasons(
    client: BlockingClient, settings: ClientSettings, broker_id: int, *, may_stop_lone: bool
) -> list[str]:
    cluster = Cluster(client)
    brokers = cluster.brokers()
    if broker_id not in brokers:
        ids = ", ".join(map(str, brokers))
        raise ClusterError(f"there is no broker {broker_id}; the cluster has {ids}")
    going = cluster.reassigning()  # first: what ends meanwhile counts as in sync
    hosted = [one for one in cluster.partitions() if broker_id in one.replicas]
    min_isr = cluster.min_isr(sorted({one.topic for one in hosted}))
    limits = Limits(settings.api_timeout_ms, settings.request_timeout_ms)
    quorum = QuorumAsker(client, limits, SystemClock(), of_controllers=False).describe()
    return [
        *endangered_quorum(broker_id, quorum),
        *endangered(broker_id, hosted, min_isr, going, may_stop_lone=may_stop_lone),
    ]
