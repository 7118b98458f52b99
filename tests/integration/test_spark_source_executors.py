"""Executors that lack the package: one line that says what to install."""

from pathlib import Path

import pytest

from tests.support.lake.bucket import Bucket
from tests.support.spark.session import spark_session
from tests.support.spark.standalone import standalone_cluster

pytestmark = pytest.mark.long(seconds=40)


def test_an_executor_without_the_package_says_what_to_install(tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    lacking = tmp_path / "lacking"
    lacking.mkdir()
    (lacking / "sitecustomize.py").write_text("import sys\nsys.modules['pipeline'] = None\n")
    with Bucket(tmp_path / "bucket") as bucket:
        bucket.partition("orders").batches(2).roll().copy()
        with (
            standalone_cluster(
                tmp_path / "spark", workers=1, environment={"PYTHONPATH": str(lacking)}
            ) as url,
            spark_session(url, spark_executor_memory="512m") as spark,
        ):
            frame = (
                spark.read.format("tidemark")
                .option("tidemark.bucket", bucket.address.settings["dir"])
                .option("subscribe", "orders")
                .load()
            )
            with pytest.raises(PySparkException) as caught:
                frame.count()
    lines = [line for line in str(caught.value).splitlines() if line.startswith("ImportError")]
    assert len(lines) == 1
    assert "cannot run Tidemark's code" in lines[0]
    assert "pip install 'DIRECTORY-OF-THE-CLONE[spark]'" in lines[0]
