"""`tidemark rsm new`: begin a storage plugin of one's own, with its test and its settings."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from runtime.disk import Disk
from tidemark.remote.options import WrongOptionError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_TEMPLATES: Final = {
    "plugin.py.txt": "{}.py",
    "test_plugin.py.txt": "test_{}.py",
    "server.properties.txt": "{}.properties",
}


@click.command("new", short_help="Begin a storage plugin: code, test, settings.")
@click.argument("name", metavar="NAME")
@click.option(
    "--directory", default=".", show_default=True, metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False), help="Where the three files go.",
)  # fmt: skip
def command(name: str, directory: Path) -> None:
    """Write a storage plugin that works, its test and its settings, to begin one of your own with.

    NAME is that of the Python module: NAME.py is a plugin for a store that speaks HTTP,
    test_NAME.py asks it every promise on a server of its own, NAME.properties has what a broker
    must be told. Nothing is written over.
    """
    if _NAME.fullmatch(name) is None:
        raise WrongOptionError(
            f"{name!r} is no name of a Python module: take small letters, digits and _"
        )
    kind = "".join(word.capitalize() for word in name.split("_"))
    disk = Disk()
    wanted = {directory / shown.format(name): source for source, shown in _TEMPLATES.items()}
    if there := [str(path) for path in wanted if disk.exists(path)]:
        raise click.ClickException(f"{', '.join(there)} exists; nothing was written")
    disk.make_dirs(directory)
    for path, source in wanted.items():
        text = files("tidemark.rsm").joinpath("template", source).read_text()
        text = text.replace("@NAME@", name).replace("@CLASS@", kind)
        disk.atomic_write(path, text.encode())
        click.echo(f"wrote {path}")
    click.echo(
        f"\nIts promises:     cd {directory} && pytest -q test_{name}.py\n"
        f"On a live store:  tidemark rsm check {name}:{kind}StorageManager --config url=http://...\n"
        "                  with PYTHONPATH=DIR in the environment, as for the broker\n"
        f"Then change {name}.py to what your store wants: docs/plugin-http.md, docs/plugin-guide.md"
    )
