"""Bad input at the start: directories that belong to another cluster."""

from collections.abc import Callable
from pathlib import Path

from tests.support.brokers.process import BrokerProcess


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_bad_input_a_directory_of_another_cluster(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    broker = make_broker("two-dirs", settings={"log.dirs": f"{first},{second}"})
    assert broker.format().returncode == 0
    meta = second / "meta.properties"
    (ours,) = [
        line.removeprefix("cluster.id=")
        for line in meta.read_text().splitlines()
        if line.startswith("cluster.id=")
    ]
    theirs = "AnotherClusterIdAAAAAA"
    meta.write_text(meta.read_text().replace(ours, theirs))
    before = contents(first), contents(second)
    done = broker.start_to_end()
    assert done.returncode == 1
    output = done.stdout + done.stderr
    assert ours in output
    assert theirs in output
    assert str(meta) in output or str(second) in output
    assert "Traceback" not in output
    assert (contents(first), contents(second)) == before
