"""`tidemark version`: which version this is."""

import click

from tidemark import __version__
from tidemark.remote.options import json_option, print_json


@click.command("version")
@json_option
def command(*, as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__})
        return
    click.echo(f"tidemark {__version__}")
