"""`tidemark dev`: one broker for development, with a remote tier to watch."""

import sys
from pathlib import Path

import click

from broker.config.broker_config import BrokerConfig
from tidemark.dev_settings import dev_settings
from tidemark.formatting import format_node, is_formatted
from tidemark.loading import load, log_to_stdout


@click.command("dev")
@click.option(
    "--data", default="./data", show_default=True, type=click.Path(path_type=Path, file_okay=False),
    help="Directory for everything the broker writes.",
)  # fmt: skip
@click.option(
    "--port", default=9092, show_default=True, type=click.IntRange(1, 65534),
    help="Port for clients; the controller takes the next one.",
)  # fmt: skip
@click.option("--override", multiple=True, metavar="K=V", help="Replace one entry; repeatable.")
def command(data: Path, port: int, override: tuple[str, ...]) -> None:
    """Run one broker with a local remote tier, ready in a second, nothing to set up."""
    log_to_stdout()
    directory = data.absolute()
    config = load(dev_settings(directory, port), override, list_without_effect=False)
    if not is_formatted(config):
        format_node(config, standalone=not config.has_static_voters)
    click.echo(welcome(config, directory))
    from broker.app import run  # a wrong configuration fails before this loads

    sys.exit(run(config))


def welcome(config: BrokerConfig, data: Path) -> str:
    """Say what to do next: make a tiered topic, fill it, read it back from the remote tier."""
    listener = config.advertised_listeners[0]
    address = f"{listener.host}:{listener.port}"
    http = config.http_listener
    watch = f"  curl -s http://{http[0]}:{http[1]}/metrics | grep -i remote\n" if http else ""
    return f"""
Tidemark on {address}, data in {data}. Stop it with Ctrl-C.

A tiered topic (1 MiB segments, almost nothing kept locally), in .venv/bin/python:
  from confluent_kafka.admin import AdminClient, NewTopic
  admin = AdminClient({{"bootstrap.servers": "{address}"}})
  admin.create_topics([NewTopic("tides", 1, 1, config={{
      "remote.storage.enable": "true", "local.retention.bytes": "1"}})])["tides"].result()

Fill it, and read the first record back; after some seconds it comes from the remote tier:
  seq 1 500000 | kcat -b {address} -t tides -P
  kcat -b {address} -t tides -C -o beginning -c 1

Watch it happen:
  ls {data}/logs/tides-0 {data}/remote-tier
{watch}"""
