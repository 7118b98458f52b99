"""The command line run in this process."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidemark.cli import cli, explained

CLUSTER = "AAAAAAAAAAAAAAAAAAAAQQ"


def write_config(tmp_path: Path, **changes: str | None) -> Path:
    entries: dict[str, str | None] = {
        "process.roles": "broker,controller",
        "node.id": "4",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}",
    }
    entries.update({name.replace("__", "."): text for name, text in changes.items()})
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in entries.items() if v is not None))
    return file


def tidemark(*arguments: object) -> Result:
    """Run one command in this process, with the error handling of `main`."""
    runner = CliRunner()
    with pytest.MonkeyPatch.context() as patch:
        callback = cli.main

        def guarded(*args: object, **kwargs: object) -> object:
            with explained():
                return callback(*args, **kwargs)  # type: ignore[call-overload]

        patch.setattr(cli, "main", guarded)
        return runner.invoke(cli, [str(one) for one in arguments], prog_name="tidemark")


def files_below(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_file())
