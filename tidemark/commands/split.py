"""`tidemark split`: a lone combined node becomes a broker beside controllers of their own."""

from collections.abc import Mapping
from pathlib import Path

import click

from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.rng import SystemRng
from tidemark.node_files.loading import load
from tidemark.node_files.split import OPTION, Split, split_node
from tidemark.node_files.split_properties import pages
from tidemark.remote.options import config_options


@click.command("split")
@click.option(
    OPTION, required=True, metavar="ID@HOST:PORT,...",
    help="The new controllers; none has the id of a broker.",
)  # fmt: skip
@click.option(
    "--into", required=True, metavar="DIR", type=click.Path(path_type=Path),
    help="Is made: a directory for each controller, and the properties of all nodes.",
)  # fmt: skip
@click.option(
    "--dynamic", is_flag=True,
    help="The voters are in the log (kraft.version 1), not in controller.quorum.voters.",
)  # fmt: skip
@config_options
def command(
    controllers: str, into: Path, dynamic: bool, config_file: Path, override: tuple[str, ...]
) -> None:
    """Make a stopped combined node a broker, and the directories of controllers for it.

    The node is the only voter of its cluster. It keeps its id and its data where they are; each
    controller begins with the node's metadata. Run again after a crash, with the same options, the
    command continues.
    """
    config = load(config_file, override, list_without_effect=False)
    done = split_node(
        config,
        controllers=controllers,
        into=into,
        is_dynamic=dynamic,
        disk=Disk(),
        clock=SystemClock(),
        rng=SystemRng(),
    )
    click.echo(_what_next(done, pages(config, done.controllers)))


def _what_next(done: Split, listeners: Mapping[int, str]) -> str:
    lines = [f"node {done.node_id} is a broker now, of cluster.id={done.cluster_id}. Next:", ""]
    for one in done.controllers:
        home, file = done.into / f"controller-{one.id}", done.properties(one)
        lines += [
            f"controller {one.id}, on {one.host}: move {home} there, name its place as log.dirs in",
            f"  {file.name}, then",
            f"  tidemark start --config {file}",
        ]
        if one.id in listeners:
            lines.append(f"  its pages (tidemark.http.listener): {listeners[one.id]}")
    lines += [
        f"broker {done.node_id}, here:",
        f"  tidemark start --config {done.broker_properties}",
    ]
    if done.other_brokers:
        shown = ", ".join(map(str, done.other_brokers))
        lines += [f"brokers {shown}: name the controllers as that file does, and start them again"]
    lines += [
        "",
        f"The metadata of the former node are kept in {done.set_aside}: nothing",
        "but this command looks there. Once the cluster serves, empty it. Keep the directory:",
        "while it is there, the node does not start with its former properties.",
    ]
    return "\n".join(lines)
