"""Makes the programs of other languages once a machine: `python -m tests.support.groups.builds`.

They lie in `.clients` beside the tree, or where `TIDEMARK_CLIENTS` says. What is there is used as
long as the sources, the pinned versions and the tool are the same; two makers wait for each other.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType

from tests.support.brokers.process import ROOT
from tests.support.kafka.tools import PEERS, why_not

SOURCES = ROOT / "tests/support/clients"
GO = shutil.which("go") or next((p for p in ("/usr/local/go/bin/go",) if Path(p).exists()), None)


def place() -> Path:
    """The folder of what was made."""
    return Path(os.environ.get("TIDEMARK_CLIENTS") or ROOT / ".clients").absolute()


def java_is_missing() -> str | None:
    """Why the Java client cannot run here."""
    return why_not() or (None if shutil.which("javac") else "no javac on PATH")


def go_is_missing() -> str | None:
    """Why the clients in Go cannot run here."""
    return None if GO else "no continue PATH and none in /usr/local/go"


def node_is_missing() -> str | None:
    """Why the clients of Node cannot run here."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"not on PATH: {', '.join(missing)}" if missing else None


def java_command(bootstrap: str) -> list[str]:
    """A JVM with the member; small, for there are several."""
    classes = made("java", _make_java)
    jars = subprocess.run(
        [str(PEERS / "kafka"), "fetch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = ["-Xmx96m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", f"{classes}:{jars}/*", "Member", bootstrap]


def apps_are_missing() -> str | None:
    """Why Kafka Connect and Streams cannot run here."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"not on PATH: {', '.join(missing)}" if missing else None


def apps_command(main: str, *arguments: str) -> list[str]:
    """A program of Kafka Connect or Streams."""
    made_here = made("apps", _make_apps)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", f"{made_here}:{made_here}/lib/*", main, *arguments]


def _make_apps(target: Path) -> None:
    lib = target / "lib"
    pom = ["-q", "-B", "-f", str(SOURCES / "apps/pom.xml")]
    _run(["mvn", *pom, "dependency:copy-dependencies", f"-DoutputDirectory={lib}"], ROOT)
    source = str(SOURCES / "apps/WordCount.java")
    _run(["javac", "-nowarn", "-cp", f"{lib}/*", "-d", str(target), source], ROOT)


def go_command(library: str) -> Callable[[str], list[str]]:
    """The program of one library in Go."""
    return lambda bootstrap: [str(made("go", _make_go) / "member"), library, bootstrap]


def node_command(library: str) -> Callable[[str], list[str]]:
    """The program of one library on Node."""
    return lambda bootstrap: ["node", str(made("node", _make_node) / f"{library}.mjs"), bootstrap]


@cache
def pythons_of_ci() -> ModuleType:
    """What `make pythons` runs; it knows how an interpreter and its wheels are found."""
    spec = importlib.util.spec_from_file_location("pythons_of_ci", ROOT / ".ci/pythons.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def pythons() -> dict[tuple[int, int], str]:
    """Each Python that Tidemark runs with and that is found: on PATH, of pyenv and of uv."""
    ci = pythons_of_ci()
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    more = [str(folder) for place in (pyenv, uv) for folder in sorted(place.glob("*/bin"))]
    found = {version: ci.interpreter(version, more) for version in ci.VERSIONS}
    return {version: path for version, path in found.items() if path is not None} | {
        sys.version_info[:2]: sys.executable
    }


def python_with_a_client(version: tuple[int, int]) -> Path:
    """A Python that has a Kafka client: this one, or one in an environment of its own.

    Raises:
        Exception: `NoWheelError` of `pythons_of_ci`: the client has no wheel for it.
    """
    if version == sys.version_info[:2]:
        return Path(sys.executable)
    name, python = f"python{version[0]}.{version[1]}", pythons()[version]
    return made(name, partial(_make_python, python), "python") / "bin" / "python"


def _make_python(python: str, target: Path) -> None:
    _run([python, "-m", "venv", str(target)], ROOT)
    wanted = SOURCES / "python" / "requirements.txt"
    pythons_of_ci().install([str(target / "bin" / "pip")], "-r", str(wanted))


def _make_java(target: Path) -> None:
    jars = subprocess.run(
        [str(PEERS / "kafka"), "fetch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    sources = [str(path) for path in sorted((SOURCES / "java").glob("*.java"))]
    _run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(target), *sources], ROOT)


def _make_go(target: Path) -> None:
    assert GO is not None
    # Not optimised: a build from nothing takes two thirds of the time.
    flags = ["-buildvcs=false", "-gcflags=all=-N -l", "-ldflags=-s -w"]
    _run([GO, "build", *flags, "-o", str(target / "member"), "."], SOURCES / "go")


def _make_node(target: Path) -> None:
    for path in (SOURCES / "node").iterdir():
        if path.is_file():
            shutil.copy(path, target)
    _run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], target)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]} failed:\n{(done.stdout + done.stderr)[-3000:]}"


_MADE: dict[str, Path] = {}


def made(name: str, make: Callable[[Path], None], sources: str = "") -> Path:
    """The folder with what `make` makes of the sources of that name, or of another one."""
    if name in _MADE:
        return _MADE[name]
    digest = hashlib.sha256(sys.platform.encode())
    for path in sorted((SOURCES / (sources or name)).iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    target = place() / name
    stamp = place() / f"{name}.made"
    place().mkdir(parents=True, exist_ok=True)
    with (place() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == digest.hexdigest()):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            began = time.monotonic()
            make(target)
            stamp.write_text(digest.hexdigest())
            took = time.monotonic() - began
            print(f"clients: {target} is ready after {took:.0f} s", file=sys.stderr)
    _MADE[name] = target
    return target


def main() -> None:
    """Make what `make test` needs and can be made here; `--all` what else tests may need."""
    wanted = [
        ("java", java_is_missing, _make_java),
        ("go", go_is_missing, _make_go),
        ("node", node_is_missing, _make_node),
    ]
    if "--all" in sys.argv[1:]:
        wanted.append(("apps", apps_are_missing, _make_apps))
    for name, missing, make in wanted:
        reason = missing()
        try:
            print(f"clients: {name}: {reason or made(name, make)}", file=sys.stderr)
        except AssertionError as error:  # its tests fail with the same words; others continue
            print(f"clients: {name}: {error}", file=sys.stderr)
    ci = pythons_of_ci()
    for version in {min(pythons()), max(pythons())} - {sys.version_info[:2]}:
        try:
            print(f"clients: {python_with_a_client(version)}", file=sys.stderr)
        except (AssertionError, ci.NoWheelError, ci.PipError) as error:
            print(f"clients: Python {version}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
