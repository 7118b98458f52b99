"""`tidemark features`: which levels of features a cluster has finalised; higher ones."""

from pathlib import Path
from typing import Any

import click

from metadata_topic.controller.features import DEFAULT_FEATURES
from metadata_topic.image.image import METADATA_VERSION
from tidemark.cluster.asking import Cluster
from tidemark.cluster.table import table
from tidemark.quorum.client_settings import client_settings
from tidemark.remote.options import (
    WrongOptionError,
    cluster_options,
    json_option,
    print_json,
    terminal_width,
)

_COLUMNS = ("Feature", "SupportedMinVersion", "SupportedMaxVersion", "FinalizedVersionLevel")

_FIELDS = ("feature", "supported_min_version", "supported_max_version", "finalized_version_level")


@click.group("features")
def command() -> None:
    """Show and raise the levels of features that a cluster has finalised."""


@command.command("describe")
@json_option
@cluster_options
def describe_command(*, as_json: bool, bootstrap: str, command_config: Path | None) -> None:
    """Show what the broker supports, and what the cluster has finalised (0: off)."""
    with client_settings(command_config).client(bootstrap) as client:
        found = Cluster(client).features()
    levels = _levels(found)
    rows = [
        (one.name, one.min_version, one.max_version, levels.get(one.name, 0))
        for one in sorted(found.supported_features, key=lambda one: one.name)
    ]
    if as_json:
        features = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
        print_json({"features": features, "epoch": found.finalized_features_epoch})
        return
    click.echo(table(_COLUMNS, rows, terminal_width()), nl=False)
    click.echo(f"Epoch: {found.finalized_features_epoch}")


@command.command("upgrade")
@click.argument("wanted", metavar="[FEATURE=LEVEL]...", nargs=-1)
@json_option
@cluster_options
def upgrade_command(
    *, wanted: tuple[str, ...], as_json: bool, bootstrap: str, command_config: Path | None
) -> None:
    """Finalise higher levels of features, all or none.

    Without FEATURE=LEVEL: those that a new cluster has, as far as they are lower here; metadata
    version apart. Every node has to support them: upgrade all of them first.
    """
    with client_settings(command_config).client(bootstrap) as client:
        cluster = Cluster(client)
        now = _levels(cluster.features())
        levels = dict(map(_wanted, wanted)) if wanted else _of_new_clusters(now)
        if levels:
            cluster.upgrade_features(levels)
    if as_json:
        changes = [
            {"feature": name, "from": now.get(name, 0), "to": level}
            for name, level in levels.items()
        ]
        print_json({"upgraded": changes})
        return
    for name, level in levels.items():
        click.echo(f"{name}: {now.get(name, 0)} -> {level}")
    if not levels:
        click.echo("nothing to upgrade: all features are at the level of a new cluster")


def _of_new_clusters(now: dict[str, int]) -> dict[str, int]:
    return {
        name: level
        for name, level in DEFAULT_FEATURES.items()
        if name != METADATA_VERSION and level > now.get(name, 0)
    }


def _wanted(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if not name or not level.isdecimal():
        raise WrongOptionError(f"{text!r}: must be FEATURE=LEVEL, as in kraft.version=1")
    return name, int(level)


def _levels(found: Any) -> dict[str, int]:
    return {one.name: one.max_version_level for one in found.finalized_features}
