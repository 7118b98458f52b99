"""What travels to executors: the reader without what is open, and a sentence where nothing is."""

import os
import subprocess
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from traceback import extract_tb, format_exception

import pytest

pytest.importorskip("pyspark", reason="needs pyspark")

from pyspark.cloudpickle import dumps, loads

from kafka_client.blocking import ClusterError
from pipeline.errors import OptionError, without_stack
from pipeline.jobs.consume_task import ConsumeTask, consume_task
from pipeline.jobs.record_hash import Digest
from pipeline.shipping import packed_task, shipped
from pipeline.spark.options import batch_options
from pipeline.spark.partition import SplitPartition, tasks_of
from pipeline.spark.reader import BatchReader
from pipeline.spark.reading import stream_reader_class
from pipeline.spark.schema import schema_of
from pipeline.spark.source import TidemarkSource
from pipeline.values import Isolation, OffsetRange, Source, Split, StoreAddress
from tests.support.source.said_log import TopicPartition

OPTIONS = {"subscribe": "a", "kafka.bootstrap.servers": "localhost:1"}


def test_a_source_and_its_readers_travel() -> None:
    schema = schema_of(None, include_headers=False)
    source = loads(dumps(TidemarkSource(OPTIONS)))
    assert source.options == OPTIONS
    assert isinstance(loads(dumps(source.reader(schema))), BatchReader)
    assert isinstance(loads(dumps(source.streamReader(schema))), stream_reader_class())


def test_an_open_stream_stays_behind() -> None:
    reader = stream_reader_class()(OPTIONS, schema_of(None, include_headers=False))
    reader._stream = open(os.devnull)  # type: ignore[assignment]  # noqa: SIM115
    try:
        assert loads(dumps(reader))._stream is None
    finally:
        reader.stop()


def without_the_package(directory: Path, program: str, packed: bytes) -> str:
    """The last line of a Python that has pyspark and not this package."""
    (directory / "packed").write_bytes(packed)
    program = (
        "import sys, pathlib; sys.path = [one for one in sys.path if 'site-packages' in one or"
        " 'python3' in one or one.endswith('.zip')];"
        " from pyspark.cloudpickle import loads;"
        " sys.modules['pipeline'] = None;"
        f" packed = pathlib.Path('packed').read_bytes(); {program}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=directory
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_an_executor_without_the_package_says_what_to_install(tmp_path: Path) -> None:
    packed = dumps(BatchReader(batch_options(OPTIONS), ("key",)))
    line = without_the_package(tmp_path, "loads(packed)", packed)
    assert line.startswith("ImportError: ")
    assert "pip install 'DIRECTORY-OF-THE-CLONE[spark]'" in line


def test_a_job_on_an_executor_without_the_package_says_what_to_install(tmp_path: Path) -> None:
    task = ConsumeTask("a", 0, OffsetRange(0, 0), {})
    packed = dumps((shipped(consume_task), packed_task(task)))
    line = without_the_package(tmp_path, "call, task = loads(packed); call(task)", packed)
    assert line.startswith("ImportError: ")
    assert "pip install 'DIRECTORY-OF-THE-CLONE[spark]'" in line
    assert shipped(consume_task)(packed_task(task)) == (0, Digest())


def test_a_task_shows_no_setting() -> None:
    source = Source(
        StoreAddress("a.b:C", {"secret": "hush"}), None, "", Isolation.READ_COMMITTED, True
    )
    (task,) = tasks_of([Split(TopicPartition("a", 0), (), 5)], source)
    assert "hush" not in repr(task)


def test_a_task_travels_and_the_source_is_pickled_and_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickled = []

    def state(self: Source) -> list[object]:
        pickled.append(self)
        return [getattr(self, one.name) for one in fields(self)]

    monkeypatch.setattr(Source, "__getstate__", state)
    source = Source(
        StoreAddress("a.b:C", {"secret": "hush"}), None, "", Isolation.READ_COMMITTED, True
    )
    splits = [Split(TopicPartition("a", number), (), 5) for number in range(20)]
    found = [loads(dumps(task)) for task in tasks_of(splits, source)]
    assert all(isinstance(task, SplitPartition) for task in found)
    assert [task.split for task in found] == splits
    assert {id(task.source) for task in found} == {id(found[0].source)}
    assert found[0].source == source
    assert len(pickled) == 1


@pytest.mark.parametrize("options", [{"startingOffset": "earliest"}, {"startingOffsets": "soon"}])
def test_a_wrong_option_comes_without_the_calls_below_the_interface(
    options: dict[str, str],
) -> None:
    with pytest.raises(OptionError) as caught:
        TidemarkSource(OPTIONS | options)
    shown = "".join(format_exception(caught.value))
    assert shown.count("  File ") == 2, "this test, and the interface"
    assert shown.splitlines()[-1].startswith("pipeline.errors.OptionError: ")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("method", ["schema", "reader", "streamReader", "writer", "streamWriter"])
def test_so_does_each_method_of_the_interface(method: str) -> None:
    source = TidemarkSource({"kafka.bootstrap.servers": "localhost:1"})
    source.options["kafka.bootstrap.server"] = "typo"
    schema = schema_of(None, include_headers=False)
    call = {
        "schema": source.schema,
        "reader": partial(source.reader, schema),
        "streamReader": source.streamReader(schema).initialOffset,
        "writer": partial(source.writer, schema, True),
        "streamWriter": partial(source.streamWriter, schema, True),
    }[method]
    with pytest.raises(OptionError) as caught:
        call()
    assert len(extract_tb(caught.value.__traceback__)) == 2


def test_so_do_errors_of_the_client_which_are_of_another_package() -> None:
    def refused() -> None:
        raise ClusterError("there is no topic 'a'")

    with pytest.raises(ClusterError) as caught:
        without_stack(refused)()
    assert len(extract_tb(caught.value.__traceback__)) == 2
