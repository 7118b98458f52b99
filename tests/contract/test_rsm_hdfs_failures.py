"""HDFS when something dies or hangs: a writer, the DataNode, the NameNode."""

import io
import logging
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.hdfs.plugin import HdfsRemoteStorageManager
from rsm_plugins.testing import LOG_BYTES, BreakingFile, copy, read, segment, segment_data
from tests.support.brokers.process import until

if TYPE_CHECKING:
    from tests.support.stores.hdfs import Hdfs

pytestmark = [pytest.mark.integration, pytest.mark.jvm]

BIG = os.urandom(5 << 20)
DRIVERS = ("hdfs-native", "webhdfs")
HURRIED = {"request.timeout.ms": "1000", "api.call.attempts": "2"}
HALF_A_COPY = """
import io, sys
from dataclasses import replace
from rsm_plugins.hdfs.plugin import HdfsRemoteStorageManager
from rsm_plugins.testing import segment, segment_data

class Stuck(io.BytesIO):
    def read(self, size=-1):
        if self.tell() >= 3 << 20:
            print("half", flush=True)
            sys.stdin.read()
        return super().read(size)

url, driver, user = sys.argv[1:]
manager = HdfsRemoteStorageManager()
manager.configure({"url": url, "driver": driver, "user": user})
data = replace(segment_data(), log=Stuck(bytes(5 << 20)))
manager.copy_log_segment_data(segment(size_bytes=5 << 20), data)
"""


def configured(hdfs: "Hdfs", driver: str, root: str, **settings: str) -> HdfsRemoteStorageManager:
    url = (hdfs.web if driver == "webhdfs" else hdfs.rpc) + root
    manager = HdfsRemoteStorageManager()
    manager.configure({"url": url, "driver": driver, "user": "tester", **settings})
    return manager


@pytest.mark.parametrize("driver", DRIVERS)
def test_files_of_a_killed_writer_block_no_copy_and_go_with_the_segment(
    hdfs: "Hdfs", driver: str
) -> None:
    before = hdfs.files_being_written()  # brokers that other tests killed left some
    root = hdfs.new_root()
    manager = configured(hdfs, driver, root)
    url = (hdfs.web if driver == "webhdfs" else hdfs.rpc) + root
    with subprocess.Popen(
        [sys.executable, "-c", HALF_A_COPY, url, driver, "tester"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half\n"
        left = until(
            lambda: [path for path in hdfs.tree(root) if not path.endswith("/")],
            "the file is there",
        )
        writer.send_signal(signal.SIGKILL)
    assert len(left) == 1
    assert list(manager.list_objects()) == []
    metadata = segment(size_bytes=len(BIG))
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_log_segment(metadata, 0)
    copied = copy(manager, metadata, segment_data(BIG))
    assert read(manager.fetch_log_segment(copied, 0)) == BIG
    manager.delete_log_segment_data(copied)
    assert hdfs.tree(root) == set()
    assert hdfs.files_being_written() <= before
    manager.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_copy_whose_disk_breaks_leaves_no_temporary_file(hdfs: "Hdfs", driver: str) -> None:
    before = hdfs.files_being_written()  # brokers that other tests killed left some
    root = hdfs.new_root()
    manager = configured(hdfs, driver, root)
    data = replace(segment_data(), log=BreakingFile(BIG, after=3 << 20))
    with pytest.raises((OSError, RemoteStorageError)):
        manager.copy_log_segment_data(segment(size_bytes=len(BIG)), data)
    assert [path for path in hdfs.tree(root) if not path.endswith("/")] == []
    assert hdfs.files_being_written() <= before
    manager.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_copy_leaves_three_files_and_a_deletion_nothing(hdfs: "Hdfs", driver: str) -> None:
    root = hdfs.new_root()
    manager = configured(hdfs, driver, root)
    copied = copy(manager, segment())
    copy(manager, segment())
    tree = hdfs.tree(root)
    assert sorted(path.rpartition(".")[2] for path in tree if path[-1] != "/") == [
        "indexes",
        "log",
        "manifest",
    ]
    assert sum(path.endswith("/") for path in tree) == 2
    manager.delete_log_segment_data(copied)
    assert hdfs.tree(root) == set()
    manager.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_replication_and_block_size_are_those_that_were_set(hdfs: "Hdfs", driver: str) -> None:
    root = hdfs.new_root()
    settings = {"replication": "1", "block.size.bytes": str(2 << 20)}
    manager = configured(hdfs, driver, root, **settings)
    copied = copy(manager, segment(size_bytes=len(BIG)), segment_data(BIG))
    assert read(manager.fetch_log_segment(copied, 2_000_000, 2_200_000)) == BIG[2_000_000:2_200_001]
    [log] = [path for path in hdfs.tree(root) if path.endswith(".log")]
    status = hdfs.call(log, "GETFILESTATUS")["FileStatus"]
    assert (status["replication"], status["blockSize"]) == (1, 2 << 20)
    assert status["owner"] == "tester"
    manager.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_data_node_that_hangs_is_a_retriable_error_in_time(hdfs: "Hdfs", driver: str) -> None:
    root = hdfs.new_root()
    manager = configured(hdfs, driver, root)
    hurried = configured(hdfs, driver, root, **HURRIED)
    copied = copy(manager, segment())
    with hdfs.paused(hdfs.data_node):
        with pytest.raises(RetriableRemoteStorageError):
            read(hurried.fetch_log_segment(copied, 0))
        with pytest.raises(RetriableRemoteStorageError):
            copy(hurried, segment(2))
    assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES
    copied = copy(manager, segment(2))
    assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES
    hurried.close()
    manager.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_name_node_that_hangs_is_a_retriable_error_in_time(hdfs: "Hdfs", driver: str) -> None:
    root = hdfs.new_root()
    manager = configured(hdfs, driver, root)
    hurried = configured(hdfs, driver, root, **HURRIED)
    copied = copy(manager, segment())
    with hdfs.paused(hdfs.name_node):
        with pytest.raises(RetriableRemoteStorageError):
            hurried.fetch_log_segment(copied, 0)
        with pytest.raises(RetriableRemoteStorageError):
            hurried.copy_log_segment_data(segment(2), segment_data())
        with pytest.raises(RetriableRemoteStorageError):
            hurried.delete_log_segment_data(copied)
    # What hung in the queue is done late: a deletion says "try again", and its outcome is open.
    copied = copy(manager, segment())
    assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES
    hurried.close()
    manager.close()


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs"])
def test_nobody_there_is_a_warning_at_first_and_then_retriable(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        port = closed_soon.getsockname()[1]
    manager = HdfsRemoteStorageManager()
    with caplog.at_level(logging.WARNING):
        manager.configure({"url": f"{scheme}://127.0.0.1:{port}/x", "request.timeout.ms": "500"})
    assert "does not answer" in caplog.text
    with pytest.raises(RetriableRemoteStorageError):
        manager.copy_log_segment_data(segment(), segment_data())
    manager.close()


def test_a_nameservice_is_found_in_the_directory_of_settings(hdfs: "Hdfs", tmp_path: Path) -> None:
    values = {
        "dfs.ha.namenodes.lake": "one,two",
        "dfs.namenode.rpc-address.lake.one": "127.0.0.1:9",
        "dfs.namenode.rpc-address.lake.two": hdfs.rpc.removeprefix("hdfs://"),
    }
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in values.items()
    )
    (tmp_path / "core-site.xml").write_text("<configuration/>")
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{rows}</configuration>")
    manager = HdfsRemoteStorageManager()
    manager.configure({"url": f"hdfs://lake{hdfs.new_root()}", "config.dir": str(tmp_path)})
    copied = copy(manager, segment(), segment_data(io.BytesIO(LOG_BYTES).getvalue()))
    assert read(manager.fetch_log_segment(copied, 7, 9)) == LOG_BYTES[7:10]
    manager.close()
