"""A SparkSession for a command, which no user has made."""

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

from pipeline.errors import need
from pipeline.java_home import provide_java
from runtime.child_process import killing_children_on_error

_PYTHON: Final = "spark.pyspark.python"
_MAY_NAME_A_MASTER: Final = frozenset(
    ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")
)


def name_workers_python(
    master: str | None, settings: Mapping[str, str], environ: MutableMapping[str, str]
) -> None:
    """Have workers on this machine run this Python, or that of the settings.

    Spark asks the environment alone for it, and takes the first `python3` of PATH where that says
    nothing, which need not have Tidemark. Workers on other machines have Pythons of their own.
    Without a master Spark runs here, unless settings of its own say otherwise, in a file perhaps.
    """
    found = master or settings.get("spark.master")
    if found is None and not environ.keys() & _MAY_NAME_A_MASTER:
        found = "local[*]"
    if found is not None and found.startswith("local"):
        environ.setdefault("PYSPARK_PYTHON", settings.get(_PYTHON, sys.executable))


@contextmanager
def spark_session(name: str, master: str | None, settings: Mapping[str, str]) -> Iterator[Any]:
    """A session, stopped at the end; workers run this Python unless a setting names another.

    PySpark alone would leave its JVM behind where Ctrl-C comes while it starts: the directory in
    which the JVM is to write its port is gone then, and the JVM waits for a driver permanently.

    Args:
        name: what Spark's UI shows.
        master: `local[4]`, `spark://host:7077`, ...; None: what Spark's own settings say.
        settings: of Spark; they win.

    Raises:
        MissingPackageError: pyspark or a Java is missing.
    """
    need("spark", "pyspark", "pyarrow", "numpy")
    provide_java()
    name_workers_python(master, settings, os.environ)
    from pyspark.sql import SparkSession

    ours = {_PYTHON: sys.executable, "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (ours | dict(settings)).items():
        builder = builder.config(key, value)
    with killing_children_on_error():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
