"""A broker whose remote tier is HDFS or any URL of fsspec: tiered, expired, read, deleted."""

import glob
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import TIERED, as_read, create, delete_topic, values

FSSPEC = "rsm_plugins.fsspec:FsspecRemoteStorageManager"
HDFS = "rsm_plugins.hdfs:HdfsRemoteStorageManager"
SETTINGS = {"log.segment.bytes": "1048576", "tidemark.remote.copy.max.ms": "8000"}
RECORDS = values(1_000)


class Tier(NamedTuple):
    """A store: how a broker is told of it, and what an independent look finds in it."""

    settings: Mapping[str, str]
    files: Callable[[], set[str]]


def in_files(tmp_path: Path, _: pytest.FixtureRequest) -> Tier:
    root = tmp_path / "store"

    def files() -> set[str]:
        found = glob.glob(f"{root}/**/*", recursive=True)  # bears with files that go meanwhile
        return {path for path in found if os.path.isfile(path)}

    return Tier({"url": f"file://{root}"}, files)


def in_s3(_: Path, request: pytest.FixtureRequest) -> Tier:
    s3: Any = request.getfixturevalue("s3")
    bucket = s3.new_bucket()
    settings = {
        "url": f"s3://{bucket}/tier",
        "option.endpoint_url": s3.url,
        "option.key": "test",
        "option.secret": "test",
        "option.client_kwargs": '{"region_name": "us-east-1"}',
    }
    return Tier(settings, lambda: set(s3.keys(bucket)))


def in_hdfs(_: Path, request: pytest.FixtureRequest) -> Tier:
    hdfs: Any = request.getfixturevalue("hdfs")
    root = hdfs.new_root()
    return Tier({"url": hdfs.rpc + root}, lambda: hdfs.tree(root))


def in_web_hdfs(_: Path, request: pytest.FixtureRequest) -> Tier:
    hdfs: Any = request.getfixturevalue("hdfs")
    root = hdfs.new_root()
    return Tier({"url": hdfs.web + root, "user": "tester"}, lambda: hdfs.tree(root))


@pytest.mark.parametrize(
    ("plugin", "place"),
    [
        pytest.param(FSSPEC, in_files, id="file"),
        pytest.param(FSSPEC, in_s3, id="s3fs"),
        pytest.param(HDFS, in_hdfs, id="hdfs", marks=pytest.mark.jvm),
        pytest.param(HDFS, in_web_hdfs, id="webhdfs", marks=pytest.mark.jvm),
    ],
)
def test_old_records_are_read_from_the_store_and_a_deleted_topic_leaves_it(
    make_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    plugin: str,
    place: Callable[[Path, pytest.FixtureRequest], Tier],
) -> None:
    tier = place(tmp_path, request)
    store = {
        "remote.log.storage.manager.class.name": plugin,
        **{f"rsm.config.{name}": value for name, value in tier.settings.items()},
    }
    broker = make_broker(tiered=True, store=store, settings=SETTINGS).start()
    create(broker, "tides", **{key.replace(".", "_"): value for key, value in TIERED.items()})
    produce(broker, "tides", RECORDS)
    until(
        lambda: (
            len(broker.local_segments("tides")) == 1
            and len([path for path in tier.files() if path.endswith(".manifest")]) >= 3
        ),
        "all but the active segment are remote, and local no more",
    )
    assert read_all(broker, "tides") == as_read(RECORDS)
    assert read_all(broker, "tides", start=321) == as_read(RECORDS[321:], 321)
    broker.kill()
    broker.start()
    assert read_all(broker, "tides") == as_read(RECORDS)
    delete_topic(broker, "tides")
    until(lambda: not any("tides" in path for path in tier.files()), "nothing of it is left")
