"""A real HDFS for tests: NameNode and DataNode of the peer, one pair for the whole pytest run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.brokers.process import free_ports

_PEERS = Path(__file__).resolve().parents[4] / "shared" / "peers"
PEER = Path(os.environ.get("TIDEMARK_PEERS", _PEERS)) / "hdfs"


def why_not() -> str | None:
    """Why there can be no HDFS here; None: there can."""
    if not PEER.exists():
        return f"no HDFS peer at {PEER}"
    if shutil.which("java") is None:
        return "no JVM: java is not on PATH"
    if shutil.which("mvn") is None:
        return "no Maven: mvn is not on PATH, the HDFS peer is resolved with it"
    return None


class Hdfs:
    """Where HDFS answers, and what a test needs to look at it from outside."""

    def __init__(self, rpc: str, web: str, name_node: int, data_node: int) -> None:
        self.rpc = rpc
        self.web = web
        self.name_node, self.data_node = name_node, data_node

    def new_root(self) -> str:
        """The path of a directory that no other test knows; not made."""
        return f"/test-{uuid.uuid4().hex}"

    def call(self, path: str, operation: str, **parameters: str) -> Any:
        """The JSON answer of WebHDFS to a GET; None where there is no such path."""
        query = "&".join(f"{k}={v}" for k, v in {"op": operation, **parameters}.items())
        url = f"{self.web.replace('webhdfs', 'http', 1)}/webhdfs/v1{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return None
            raise

    def tree(self, path: str) -> set[str]:
        """Every file and directory below a path; directories end with a slash."""
        answer = self.call(path, "LISTSTATUS")
        found = set()
        for status in answer["FileStatuses"]["FileStatus"] if answer else ():
            child = f"{path}/{status['pathSuffix']}"
            if status["type"] == "DIRECTORY":
                found |= {child + "/", *self.tree(child)}
            else:
                found.add(child)
        return found

    def files_being_written(self) -> int:
        """Leases that the NameNode knows of: files that were not closed."""
        bean = "Hadoop:service=NameNode,name=FSNamesystem"
        url = f"{self.web.replace('webhdfs', 'http', 1)}/jmx?qry={bean}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            beans = json.load(answer)["beans"]
        return int(beans[0]["NumFilesUnderConstruction"])

    @contextmanager
    def paused(self, pid: int) -> Iterator[None]:
        """Stop a daemon for a while: it keeps its sockets and says nothing."""
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def running_hdfs(data: Path) -> Iterator[Hdfs]:
    """Start both daemons with their files below `data`; ended afterwards, whatever happened."""
    ports = [str(port) for port in free_ports(2)]
    command = [sys.executable, str(PEER), "start", "--data", str(data)]
    subprocess.run(
        [*command, "--port", ports[0], "--http-port", ports[1]],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=240,
    )
    facts = json.loads((data / "hdfs.json").read_text())
    try:
        yield Hdfs(facts["hdfs"], facts["webhdfs"], *facts["pids"])
    finally:
        for pid in facts["pids"]:
            os.kill(pid, signal.SIGKILL)
