"""`tidemark version`: which version this is."""

import click

from tidemark import __version__


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(f"tidemark {__version__}")
