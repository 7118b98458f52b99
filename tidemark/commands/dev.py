"""`tidemark dev`: one broker for development, with a remote tier to watch."""

import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from broker.config.broker_config import BrokerConfig
from broker.config.keys import BROKER_KEYS
from broker.config.properties import dump
from broker.node.cluster_secret import draw_cluster_secret
from broker.node.directories import DirectoryError
from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.log_lines import QuietStart, also_logged_to
from runtime.rng import SystemRng
from tidemark.dev.ports import first_steps, ports_of, refuse_taken_ports, typed
from tidemark.dev.settings import (
    BROKERS_MAX,
    CONTROLLERS_MAX,
    HTTP_ABOVE,
    LOG,
    PORT_MAX,
    PROPERTIES,
    S3Bucket,
    dev_settings,
)
from tidemark.node_files.formatting import format_node, is_formatted
from tidemark.node_files.loading import load, log_to_stdout
from tidemark.node_files.log_directories import stopped

if TYPE_CHECKING:
    from broker.process.server_process import ServerProcess
    from tidemark.dev.cluster import DevCluster

_DATA: Final = Path("./data")
_WORDY: Final = ("metadata_topic", "broker", "local_log")
"""The election of a lone node is no news."""
_PROGRESS: Final = ("local_log.manager.load_run", "broker.node.start_jobs")
"""How far a long start is."""


def _bucket(_: click.Context, __: click.Parameter, text: str | None) -> S3Bucket | None:
    try:
        return None if text is None else S3Bucket.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("dev")
@click.option(
    "--data", default=_DATA, show_default=True, type=click.Path(path_type=Path, file_okay=False),
    help="Directory for everything the broker writes.",
)  # fmt: skip
@click.option(
    "--port", default=9092, show_default=True, type=click.IntRange(1, PORT_MAX),
    help="Port for clients; the controller takes the next one, metrics and health one that is"
    f" {HTTP_ABOVE} above.",
)  # fmt: skip
@click.option(
    "--s3", metavar="URL/BUCKET", callback=_bucket,
    help="Tier to this bucket of an S3-compatible store, such as http://127.0.0.1:4566/tidemark,"
    " instead of a directory. Credentials: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and so on.",
)  # fmt: skip
@click.option(
    "--seed", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Topics, configs and records to begin with, in YAML; topics that exist are left alone.",
)  # fmt: skip
@click.option(
    "--controllers", metavar="N", type=click.IntRange(1, CONTROLLERS_MAX),
    help="Run a broker and N controllers, each in a process of its own: clients on --port, the"
    " controllers on the N ports after it, pages on the N+1 after these.",
)  # fmt: skip
@click.option(
    "--brokers", metavar="N", type=click.IntRange(1, BROKERS_MAX),
    help="Run N brokers, with three copies of each partition where N is 3 or more, beside three"
    " controllers or as many as --controllers says: clients on the N ports from --port on.",
)  # fmt: skip
@click.option("--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable.")
def command(
    *,
    data: Path,
    port: int,
    s3: S3Bucket | None,
    seed: Path | None,
    controllers: int | None,
    brokers: int | None,
    override: tuple[str, ...],
) -> None:
    """Run one broker with a local remote tier, ready in a second, nothing to set up."""
    rest = _said(s3, seed, controllers, brokers, override)
    if controllers is not None or brokers is not None:
        from tidemark.dev.cluster import DevCluster

        counts = controllers or 3, brokers or 1
        cluster = DevCluster(data.absolute(), port, counts[0], override, s3, counts[1])
        configs = cluster.configs()
        row = partial(_row, 2 * sum(counts))
        refuse_taken_ports(configs, port, row, partial(_again, rest, data, configs))
        sys.exit(_run_cluster(cluster, data.absolute(), seed))
    began_ms = SystemClock().monotonic_ms()
    log_to_stdout()
    directory = data.absolute()
    own = dev_settings(directory, port, s3)
    config = load(own, override, list_without_effect=False, starts=True)
    refuse_taken_ports([config], port, ports_of, partial(_again, rest, data, [config]))
    with QuietStart(_WORDY, _PROGRESS) as quiet:
        say_ready = partial(_say_ready, quiet, config, directory, s3, began_ms)
        on_started = _say_ready_at_start(directory, say_ready)
        if seed is not None:
            on_started = _seeding(seed, config, directory, say_ready)
        if secret := config.tidemark_cluster_secret_file:
            draw_cluster_secret(Path(secret), Disk(), SystemRng())
        if not is_formatted(config):
            format_node(config, standalone=not config.has_static_voters)
        _write_properties(config, directory, own)
        from broker.app import run  # a wrong configuration fails before this loads
        from broker.testing import extension_of

        with also_logged_to(directory / LOG):
            sys.exit(run(config, on_started=on_started, extend=extension_of(config)))


def _said(
    s3: S3Bucket | None,
    seed: Path | None,
    controllers: int | None,
    brokers: int | None,
    override: tuple[str, ...],
) -> list[str]:
    """The options that were given, but for those that say where."""
    options = {
        "--s3": None if s3 is None else f"{s3.endpoint_url}/{s3.bucket}",
        "--seed": seed,
        "--controllers": controllers,
        "--brokers": brokers,
    }
    found = [(name, str(value)) for name, value in options.items() if value is not None]
    return [word for one in (*found, *(("--override", k) for k in override)) for word in one]


def _again(rest: list[str], data: Path, configs: list[BrokerConfig], port: int) -> str:
    """The command line with another port, and with other data where a node has them in use."""
    arguments = ["dev", "--port", str(port)]
    if any(map(_are_in_use, configs)):
        arguments += ["--data", f"{data}-{port}"]
    elif data != _DATA:
        arguments += ["--data", str(data)]
    return typed([*arguments, *rest])


def _row(count: int, port: int) -> range:
    """The ports of a cluster."""
    return range(port, port + count)


def _are_in_use(config: BrokerConfig) -> bool:
    """Whether a node runs on these data; nothing is made where there are none."""
    if not is_formatted(config):
        return False
    try:
        with stopped(config, Disk()):
            return False
    except DirectoryError:
        return True


def _say_ready(
    quiet: QuietStart, config: BrokerConfig, data: Path, s3: S3Bucket | None, began_ms: int
) -> None:
    """Say that it is ready, and what to try."""
    quiet.is_over()
    took_s = (SystemClock().monotonic_ms() - began_ms) / 1000
    click.echo(f"\nready in {took_s:.1f} s\n{welcome(config, data, s3)}")


def _say_ready_at_start(
    data: Path, say_ready: Callable[[], None]
) -> "Callable[[ServerProcess], None]":
    """The callback of a start without a seed, called when clients are served."""

    def started(_: "ServerProcess") -> None:
        _warn_of_half_a_topic(data)
        say_ready()

    return started


def _write_properties(config: BrokerConfig, data: Path, own: dict[str, str]) -> None:
    """Leave what the node is started with, for commands that take `--config`.

    `own`: what `tidemark dev` sets where it is told nothing.

    Raises:
        DirectoryError: it runs already, maybe with other settings.
    """
    disk, file = Disk(), data / PROPERTIES
    draft = file.with_suffix(".tmp")
    with stopped(config, disk):
        disk.make_dirs(data)
        disk.unlink(draft)
        disk.create_private(draft, properties_text(config.layers.static, own).encode())
        disk.rename(draft, file, durable=True)


def properties_text(entries: Mapping[str, str], own: Collection[str]) -> str:
    """Write settings for others to read; what may be a secret is named and excluded.

    Args:
        entries: all of them.
        own: names of those that `tidemark dev` sets itself, which are no secrets. Of the others a
            password is one, and whatever only a plugin knows may be one.
    """
    shown = {
        name: text
        for name, text in entries.items()
        if name in own or (name in BROKER_KEYS and not BROKER_KEYS[name].is_sensitive)
    }
    lines = [
        "# What `tidemark dev` was last started with. It writes this again at each start and never",
        "# reads it: it is for commands that take --config. For a file of your own: tidemark init",
    ]
    if missing := [name for name in entries if name not in shown]:
        lines.append(f"# Excluded, since they may be secrets: {', '.join(missing)}")
    return "\n".join(lines) + "\n" + dump(shown)


def _run_cluster(cluster: "DevCluster", data: Path, seed: Path | None) -> int:
    """Run controllers and brokers; returns the exit code."""
    if seed is None:
        return cluster.run(click.echo, lambda: _warn_of_half_a_topic(data))
    from tidemark.seed.plan import read_plan
    from tidemark.seed.seeding import Seeder
    from tidemark.seed.unfinished import UnfinishedSeed

    seeder = Seeder(read_plan(seed), cluster.address, UnfinishedSeed(data), click.echo)
    return cluster.run(click.echo, seeder.run)


def _warn_of_half_a_topic(data: Path) -> None:
    """Name the topic that a start with a seed left unfinished, where one was killed."""
    from tidemark.seed.unfinished import UnfinishedSeed

    if topic := UnfinishedSeed(data).topic:
        text = f"topic {topic} was seeded in part only; a start with --seed seeds it as a whole"
        click.echo(text, err=True)


def _seeding(
    file: Path, config: BrokerConfig, data: Path, then: Callable[[], None]
) -> "Callable[[ServerProcess], None]":
    """Read a seed; returns what carries it out in a broker that has started, and calls `then`.

    Raises:
        SeedError: something is wrong with it, and nothing was written.
    """
    from tidemark.seed.plan import read_plan  # reads YAML, which others do without
    from tidemark.seed.seeding import Seeder, seed_at_start
    from tidemark.seed.unfinished import UnfinishedSeed

    plan = read_plan(file)
    listener = config.advertised_listeners[0]

    def seed(broker: "ServerProcess") -> None:
        address = f"{listener.host}:{listener.port}"
        seeder = Seeder(plan, address, UnfinishedSeed(data), click.echo)
        seed_at_start(broker.fatal, seeder, then)

    return seed


def welcome(config: BrokerConfig, data: Path, s3: S3Bucket | None = None) -> str:
    """Say what to do next: make a tiered topic, fill it, read it back as a group."""
    from broker.process.console import console_url

    listener = config.advertised_listeners[0]
    address = f"{listener.host}:{listener.port}"
    http = config.http_listener
    page = console_url(config, http)
    look = f"  {page}  # in a browser: topics, both tiers, groups, rates\n" if page else ""
    watch = f"  curl -s http://{http[0]}:{http[1]}/metrics | grep -i remote\n" if http else ""
    places = f"  ls {data}/logs/waves-0" + ("" if s3 else f" {data}/remote-tier")
    if s3:
        listing = f"{s3.endpoint_url}/{s3.bucket}?list-type=2"
        places += f"\n  curl -s '{listing}' | grep -o '<Key>[^<]*'  # where reading is public"
    settings = data / PROPERTIES
    return f"""Tidemark on {address}, data in {data}, settings in {settings}. Stop it with Ctrl-C.
{first_steps(address)}{look}{places}
{watch}"""
