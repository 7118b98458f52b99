"""`tidemark version`: which version this is."""

from importlib.metadata import version

import click


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(f"tidemark {version('tidemark')}")
