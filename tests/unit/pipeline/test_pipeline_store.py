import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.errors import OptionError, StoreUnreachableError
from pipeline.store import (
    FSSPEC,
    HDFS,
    LOCAL_FS,
    S3,
    address_of_class,
    address_of_url,
    close_stores,
    open_store,
    shared_store,
    shown,
)
from pipeline.values import StoreAddress
from rsm_plugins.api import RemoteStorageManager
from tests.support.stores.interrupted_store import Interruptions, interrupt

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("url", "class_name", "settings"),
    [
        ("file:///data/tier", LOCAL_FS, {"dir": "/data/tier"}),
        ("file:///data/t%20ier", LOCAL_FS, {"dir": "/data/t ier"}),
        ("/data/tier", LOCAL_FS, {"dir": "/data/tier"}),
        ("s3://logs", S3, {"bucket": "logs"}),
        ("s3://logs/", S3, {"bucket": "logs"}),
        ("s3a://logs/kafka/prod/", S3, {"bucket": "logs", "prefix": "kafka/prod"}),
        ("hdfs://name:8020/kafka", HDFS, {"url": "hdfs://name:8020/kafka"}),
        ("webhdfs://name:9870/kafka", HDFS, {"url": "webhdfs://name:9870/kafka"}),
        ("gs://logs/kafka", FSSPEC, {"url": "gs://logs/kafka"}),
    ],
)
def test_a_url_stands_for_a_plugin(url: str, class_name: str, settings: dict[str, str]) -> None:
    assert address_of_url(url) == StoreAddress(class_name, settings)


def test_a_relative_directory_is_that_of_the_driver() -> None:
    assert address_of_url("tier").settings == {"dir": str(Path.cwd() / "tier")}


def test_further_settings_join_those_of_the_url() -> None:
    address = address_of_url("s3://logs/a", {"prefix": "b", "region": "eu-west-1"})
    assert address.settings == {"bucket": "logs", "prefix": "b", "region": "eu-west-1"}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file://host/dir",
        "file:///",
        "s3:///prefix",
        "s3://logs?region=x",
        "hdfs://name:8020",
        "hdfs:///dir",
        "hdfs://me:hunter2@name:8020/dir",
        "s3://AKIA:hunter2@logs/kafka",
    ],
)
def test_what_is_no_store_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(OptionError) as refused:
        address_of_url(url)
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_secret_is_shown() -> None:
    address = StoreAddress(FSSPEC, {"url": "sftp://me:hunter2@host/dir", "option.key": "hunter2"})
    assert "hunter2" not in repr(address) + shown(address)
    assert shown(address) == "sftp://host/dir"
    endpoint = {"bucket": "logs", "prefix": "a/", "endpoint.url": "http://me:hunter2@h:4566?x=y"}
    assert shown(StoreAddress(S3, endpoint)) == "s3://logs/a at http://h:4566"


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "not" / "mounted"
    with pytest.raises(StoreUnreachableError) as refused:
        open_store(address_of_url(str(missing)))
    assert str(missing) in str(refused.value)
    assert os.uname().nodename in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not missing.parent.exists()


def test_wrong_settings_are_the_options_fault(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"rsm\.config\.bucket is missing"):
        open_store(StoreAddress(S3, {}))
    with pytest.raises(OptionError, match="cannot import nowhere"):
        open_store(StoreAddress("nowhere:Class", {}))


@pytest.mark.parametrize(
    ("class_name", "name", "hint"),
    [
        (S3, "endpoint.ulr", "did you mean rsm.config.endpoint.url?"),
        (S3, "zzz", "it has "),
        (FSSPEC, "options.key", "did you mean"),
    ],
)
def test_a_setting_that_the_plugin_has_not_is_refused_by_name(
    class_name: str, name: str, hint: str
) -> None:
    with pytest.raises(OptionError) as refused:
        address_of_class(class_name, {name: "hunter2"})
    assert f"no setting rsm.config.{name}; {hint}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_settings_are_not_checked_where_nothing_says_which_there_are() -> None:
    assert address_of_class("nowhere:Class", {"a": "b"}) == StoreAddress(
        "nowhere:Class", {"a": "b"}
    )
    settings = {"url": "sftp://h/d", "option.key": "k", "cluster.id": "c"}
    assert address_of_class(FSSPEC, settings) == StoreAddress(FSSPEC, settings)


def test_a_store_is_opened_once_for_a_process_and_closed_at_its_end(tmp_path: Path) -> None:
    how = Interruptions()
    address = interrupt(StoreAddress(LOCAL_FS, {"dir": str(tmp_path)}), how)
    found: list[RemoteStorageManager] = []
    threads = [
        threading.Thread(target=lambda: found.append(shared_store(address, "c"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert how.opened == 1
    assert len(set(map(id, found))) == 1
    assert shared_store(address, "another") is not found[0]
    close_stores()
    assert how.closed == 2
    assert shared_store(address, "c") is not found[0]
    close_stores()


def test_a_store_that_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    address = address_of_url(str(tmp_path / "late"))
    with pytest.raises(StoreUnreachableError):
        shared_store(address)
    (tmp_path / "late").mkdir()
    shared_store(address)
    close_stores()


FORKED = """
import os, sys
from pipeline.store import LOCAL_FS, close_stores, shared_store
from pipeline.values import StoreAddress

address = StoreAddress(LOCAL_FS, {"dir": sys.argv[1]})
mine = shared_store(address)
assert shared_store(address) is mine
child = os.fork()
if not child:
    os._exit(0 if shared_store(address) is not mine else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert shared_store(address) is mine
close_stores()
"""


def test_a_forked_process_opens_its_own(tmp_path: Path) -> None:
    # In a process of its own: what other threads of this one hold, a fork of it would wait for.
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path)], cwd=ROOT, timeout=60, check=False
    )
    assert done.returncode == 0
