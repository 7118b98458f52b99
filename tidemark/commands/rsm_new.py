"""`tidemark rsm new`: begin a storage plugin of one's own, with its test and its settings."""

import importlib.util
import keyword
import re
import shlex
import sys
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


_PORT: Final = 19092
"""Of the broker to try it with: not Kafka's own, where somebody else's may listen."""
_STORE: Final = re.compile(r"_?(store|storage)$")
"""At the end of a name: the classes end so, too."""
_OTHERS: Final = ("", "Flaky", "Layout", "Object")
"""Before `Store` and `StorageManager` these are names of other classes, or none."""


def _why_no_name(name: str) -> str | None:
    """Why a module must not be called so; None if it may."""
    if _NAME.fullmatch(name) is None:
        return f"{name!r} is no name of a Python module: take small letters, digits and _"
    if keyword.iskeyword(name):
        return f"{name!r} is a keyword of Python: take another name"
    found = None if name in sys.stdlib_module_names else importlib.util.find_spec(name)
    if name in sys.stdlib_module_names or (found is not None and found.origin is not None):
        return f"{name!r} is another module already, which would be found in its place"
    return None


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
    disk = Disk()
    kind = "".join(word.capitalize() for word in _STORE.sub("", name).split("_"))
    kind = f"My{kind}" if kind in _OTHERS else kind
    wanted = {directory / shown.format(name): source for source, shown in _TEMPLATES.items()}
    if there := [str(path) for path in wanted if disk.exists(path)]:
        raise click.ClickException(f"{', '.join(there)} exists; nothing was written")
    if why := _why_no_name(name):
        raise WrongOptionError(why)
    disk.make_dirs(directory)
    for path, source in wanted.items():
        text = files("tidemark.rsm").joinpath("template", source).read_text()
        text = text.replace("@NAME@", name).replace("@CLASS@", kind)
        disk.atomic_write(path, text.encode())
        click.echo(f"wrote {path}")
    url = "url=http://127.0.0.1:8000/"
    plugin = f"{name}:{kind}StorageManager"
    click.echo(
        "\nIts promises, on a server of their own; they need `python -m pip install pytest`:\n"
        f"  {_typed('cd', directory.absolute())}\n"
        f"  python -m pytest -q test_{name}.py\n"
        f"On a live store, and a broker that tiers to it; Python must find {name}.py:\n"
        f"  {_typed('export', f'PYTHONPATH={directory.absolute()}')}\n"
        f"  {_typed('tidemark', 'rsm', 'check', plugin, '--config', url)}\n"
        f"  {_typed('tidemark', 'init', '--port', _PORT, '--store', plugin, '--set', url)}\n"
        f"and then what `tidemark init` prints.\n"
        f"Then change {name}.py to what your store needs: docs/plugin-http.md, docs/plugin-guide.md"
    )


def _typed(*words: object) -> str:
    return shlex.join(map(str, words))
