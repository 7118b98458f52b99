"""`tidemark pipeline export` and `verify` on a tiered broker; a machine without Spark says so."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.support.brokers.process import ROOT, BrokerProcess
from tests.support.lake.cluster import Filling, fill, tiered_cluster
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.rows import rows_of_arrow
from tests.support.spark.session import spark_environment, why_no_spark

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=90), pytest.mark.timeout(900)]
SPARK = (
    *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.driver.memory=512m", "--conf", "spark.driver.host=127.0.0.1"),
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    reason = why_no_spark()
    if reason:
        pytest.skip(reason)
    with tiered_cluster(tmp_path_factory.mktemp("cluster")) as broker:
        fill(broker, "orders", Filling(epochs=2, records=1_000))
        yield broker


def tidemark(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tidemark.cli", *arguments],
        cwd=ROOT,
        env=os.environ | spark_environment() | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.long(seconds=60)
def test_a_topic_is_exported_with_its_tail(filled: BrokerProcess, tmp_path: Path) -> None:
    to = str(tmp_path / "export")
    command = ("pipeline", "export", "orders", "--bootstrap-server", filled.bootstrap, "--to", to)
    remote_only = tidemark(*command, *SPARK)
    assert remote_only.returncode == 0, remote_only.stderr
    assert "tasks" in remote_only.stderr
    whole = tidemark(*command, "--tail", *SPARK)
    assert whole.returncode == 0, whole.stderr
    assert "records, " in whole.stdout
    table = ds.dataset(to).to_table().sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )  # fmt: skip
    assert list(rows_of_arrow(table.to_batches())) == list(
        rows_of_consumer(filled.bootstrap, "orders")
    )


def test_the_source_is_verified_against_a_consumer(filled: BrokerProcess) -> None:
    done = tidemark("pipeline", "verify", "orders", "--bootstrap-server", filled.bootstrap, *SPARK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.endswith(", equal") for line in lines)


def test_wrong_options_are_one_line() -> None:
    for arguments, said in [
        (("export", "t", "--to", "x", "--value", "json"), "--value json and --schema go together"),
    ]:
        done = tidemark("pipeline", *arguments)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_a_machine_without_pyspark_is_told_what_to_install(tmp_path: Path) -> None:
    hide = "import importlib.util as u; f = u.find_spec\n"
    hide += "u.find_spec = lambda name, *a: None if name == 'pyspark' else f(name, *a)\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    done = tidemark(
        *("pipeline", "export", "t", "--to", "x"), PYTHONPATH=f"{tmp_path}:{ROOT}"
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install 'DIRECTORY-OF-THE-CLONE[spark]'" in done.stderr
    assert "Traceback" not in done.stderr
