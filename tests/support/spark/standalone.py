"""A Spark standalone cluster on loopback: a master and workers, each a process of its own."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.brokers.process import free_ports, until
from tests.support.spark.session import spark_environment, why_no_spark

_JAVA_OPTIONS = "-Dspark.master.rest.enabled=false"  # its port would be the same for all


@contextmanager
def standalone_cluster(
    directory: Path, *, workers: int = 2, environment: dict[str, str] | None = None
) -> Iterator[str]:
    """Gives the master's URL once all workers are registered.

    Args:
        directory: for logs and the workers' files.
        workers: how many; each has one core.
        environment: of the workers, beside `spark_environment`.
    """
    reason = why_no_spark()
    if reason:
        pytest.skip(reason)
    port, web, *worker_webs = free_ports(2 + workers)
    url = f"spark://127.0.0.1:{port}"
    directory.mkdir(parents=True)
    address = ["--host", "127.0.0.1"]
    with ExitStack() as stack:
        master = ["master.Master", *address, "--port", str(port), "--webui-port", str(web)]
        stack.enter_context(_running(directory / "master", master, {}))
        for number, worker_web in enumerate(worker_webs):
            place = directory / f"worker-{number}"
            worker = ["worker.Worker", *address, "--cores", "1", "--memory", "1g"]
            worker += ["--webui-port", str(worker_web), "--work-dir", str(place), url]
            stack.enter_context(_running(place, worker, environment or {}))
        until(lambda: _workers(web) == workers, f"{workers} workers are at {url}")
        yield url


@contextmanager
def _running(place: Path, arguments: list[str], environment: dict[str, str]) -> Iterator[None]:
    import pyspark

    home, (name, *rest) = Path(pyspark.__file__).parent, arguments
    place.mkdir(parents=True)
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *rest],
            stdout=log,
            stderr=log,
            env=os.environ
            | {"SPARK_HOME": str(home), "SPARK_DAEMON_JAVA_OPTS": _JAVA_OPTIONS}
            | spark_environment()
            | environment,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print((place / "log").read_text(errors="replace")[-4_000:])


def _workers(web: int) -> int:
    with (
        suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer,
    ):
        return int(json.load(answer)["aliveworkers"])
    return 0
