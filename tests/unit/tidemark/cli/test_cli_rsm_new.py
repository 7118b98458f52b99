"""`tidemark rsm new`: what it writes, and what it refuses."""

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli import cli


def new(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["rsm", "new", *arguments])
    return done.exit_code, done.output


def test_three_files_carry_the_name(tmp_path: Path) -> None:
    code, said = new("kv_store", "--directory", str(tmp_path / "made"))
    assert code == 0, said
    made = {path.name: path.read_text() for path in (tmp_path / "made").iterdir()}
    assert set(made) == {"kv_store.py", "test_kv_store.py", "kv_store.properties"}
    assert not any("@NAME@" in text or "@CLASS@" in text for text in made.values())
    tree = ast.parse(made["kv_store.py"])
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert classes == {"KvStorageManager", "KvStore"}
    key = "remote.log.storage.manager.class.name=kv_store:KvStorageManager\n"
    assert key in made["kv_store.properties"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "test_kv.py").write_text("mine")
    code, said = new("kv", "--directory", str(tmp_path))
    assert (code, [path.name for path in tmp_path.iterdir()]) == (1, ["test_kv.py"])
    assert "test_kv.py exists; nothing was written" in said


@pytest.mark.parametrize(
    ("name", "kind"),
    [("my_blobs", "MyBlobs"), ("blobstore", "Blob"), ("store", "My"), ("object_store", "MyObject")],
)
def test_no_class_is_a_store_twice_or_takes_the_name_of_ours(
    tmp_path: Path, name: str, kind: str
) -> None:
    assert f"{name}:{kind}StorageManager" in new(name, "--directory", str(tmp_path))[1]


@pytest.mark.parametrize("name", ["class", "json", "broker", "rsm_plugins", "pytest"])
def test_bad_input_a_name_that_python_would_find_elsewhere_is_refused(
    tmp_path: Path, name: str
) -> None:
    code, said = new(name, "--directory", str(tmp_path))
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "keyword of Python" in said or "is another module already" in said


@pytest.mark.parametrize("name", ["Kv", "kv-store", "1kv", "../kv", "kv.py", ""])
def test_bad_input_a_name_that_is_no_module_is_refused(tmp_path: Path, name: str) -> None:
    code, said = new(name, "--directory", str(tmp_path))
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "is no name of a Python module" in said
