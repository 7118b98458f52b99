"""Where exports are written: a directory, S3 and HDFS keep the same promises."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.errors import OptionError
from pipeline.jobs.directory_ledger import DirectoryLedger
from pipeline.jobs.place import Place
from pipeline.jobs.place_fsspec import open_place
from pipeline.jobs.values import OvertakenError
from runtime.executors import InlinePool
from tests.support.export.places import Killed, SteppedPlace, Steps
from tests.support.export.topics import ToyTopic, export_once, rows_of
from tests.support.stores.s3 import CREDENTIALS, REGION

pytestmark = pytest.mark.lasts(seconds=40)


@pytest.fixture(params=["directory", "s3", pytest.param("hdfs", marks=pytest.mark.slow)])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "directory":
        yield f"file://{tmp_path}/export"
        return
    if request.param == "hdfs":
        pytest.importorskip("hdfs_native")
        endpoint = request.getfixturevalue("hdfs")
        yield f"{endpoint.rpc}{endpoint.new_root()}/export"
        return
    pytest.importorskip("s3fs")
    endpoint = request.getfixturevalue("s3")
    settings = {"AWS_ENDPOINT_URL": endpoint.url, "AWS_DEFAULT_REGION": REGION, **CREDENTIALS}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield f"s3://{endpoint.new_bucket()}/some/export"
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


def test_a_place_keeps_its_promises(url: str) -> None:
    place = open_place(url)
    assert place.names("a") == []
    assert place.files("a") == {}
    with place.writing("a/b/c") as file:
        file.write(b"xyz")
    with place.writing("a/b2") as file:
        file.write(b"")
    assert place.files("a") == {"b/c": 3, "b2": 0}
    assert place.names("a") == ["b", "b2"]
    place.move("a/b/c", "d/e=1/f")
    place.move("a/b/c", "d/e=1/f")
    assert place.read("d/e=1/f") == b"xyz"
    assert place.files("a") == {"b2": 0}
    place.remove("d")
    place.remove("d")
    with pytest.raises(FileNotFoundError):
        place.read("d/e=1/f")


def test_of_two_that_make_one_file_the_second_fails(url: str) -> None:
    one, other = open_place(url), open_place(url)
    assert one.create("log/1", b"first")
    assert not other.create("log/1", b"second")
    assert not one.create("log/1", b"first")
    assert other.read("log/1") == b"first"
    assert other.names("log") == ["1"]


def test_a_killed_export_and_one_between_cost_nothing(url: str) -> None:
    """All steps are walked through in memory by the unit tests; here a few, on the real store."""

    def die() -> None:
        raise Killed

    topic = ToyTopic()

    def run(name: str, steps: Steps) -> None:
        place: Place = SteppedPlace(open_place(url), steps)
        with suppress(Killed, OvertakenError):
            export_once(DirectoryLedger(place, moves=InlinePool()), topic, name)

    between: Callable[[], None] = lambda: run("between", Steps())  # noqa: E731
    for number, steps in enumerate(
        (Steps(5, die), Steps(9, die), Steps(11, die), Steps(7, between))
    ):
        topic.grow()
        run(f"run{number}", steps)
    topic.grow()
    run("last", Steps())
    place = open_place(url)
    paths = [f"day=2026-11-23/{path}" for path in place.files("day=2026-11-23")]
    assert sorted(row for path in paths for row in rows_of(place.read(path))) == topic.rows
    assert place.names("_tidemark/staging") == []


@pytest.mark.parametrize("url", ["ftp://user:hunter2@host/x", "s3://", "hdfs:///x", "gs://b/x"])
def test_other_urls_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(OptionError, match="can be written to") as caught:
        open_place(url)
    assert "hunter2" not in str(caught.value)
