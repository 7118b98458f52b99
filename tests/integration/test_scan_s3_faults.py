"""A scan of a bucket in S3 whose network fails: the rows of the log, or one line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.columns import TYPES
from pipeline.errors import DamagedDataError, StoreUnreachableError
from pipeline.read.groups import ReadLimits
from pipeline.read.split import read_split
from pipeline.store import close_stores
from pipeline.values import Isolation, RemotePiece, Source, Split, StoreAddress
from tests.support.lake.bucket import Bucket
from tests.support.lake.cluster import address_of
from tests.support.lake.rows import Row, rows_of_arrow
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_faults import Fault, Kind, Rule
from tests.support.stores.s3_proxy import S3Proxy
from tests.support.stores.s3_tier import S3Tier

pytestmark = pytest.mark.slow

GET = frozenset({Kind.GET_OBJECT})
LIMITS = ReadLimits(group_bytes=100_000, retry_s=60.0)


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def tier(s3: S3Endpoint) -> S3Tier:
    return S3Tier(s3, s3.url)


@pytest.fixture(scope="module")
def bucket(
    tier: S3Tier, environment: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bucket]:
    """Three segments of half a megabyte."""
    home = tmp_path_factory.mktemp("faults") / "bucket"
    with Bucket(home, address_of(tier.settings())) as made:
        orders = made.partition("orders")
        for _ in range(3):
            for _ in range(50):
                orders.append(*["x" * 1_000] * 10)
            orders.roll()
        orders.copy()
        yield made


@pytest.fixture
def proxy(s3: S3Endpoint) -> Iterator[S3Proxy]:
    with S3Proxy(s3.url, seed=5, pause_s=0.05) as made:
        yield made
    close_stores()


def read(bucket: Bucket, proxy: S3Proxy, limits: ReadLimits = LIMITS, **more: str) -> list[Row]:
    """All rows through the proxy, which alone is where the store is said to be."""
    settings = {**bucket.address.settings, "endpoint.url": proxy.url, "read.timeout.ms": "500"}
    address = StoreAddress(bucket.address.class_name, settings | more)
    source = Source(address, None, "", Isolation.READ_UNCOMMITTED, True)
    pieces = tuple(
        RemotePiece(one, one.start_offset, one.end_offset, 1, one.segment_size_bytes)
        for one in bucket.segments()
    )
    split = Split(bucket.partitions[0].id.topic_partition, pieces, 1)
    return list(rows_of_arrow(read_split(split, source, tuple(TYPES), limits=limits)))


def test_flipped_bytes_are_an_error_and_never_a_row(bucket: Bucket, proxy: S3Proxy) -> None:
    proxy.inject(Rule(Fault.FLIP_ANSWER, GET, key_suffix=".log"))
    with pytest.raises(DamagedDataError, match=r"\.log"):
        read(bucket, proxy)


def test_no_credentials_are_one_line(
    bucket: Bucket, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for one in CREDENTIALS:
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StoreUnreachableError, match="no credentials") as refused:
        read(bucket, proxy)
    assert "\n" not in str(refused.value)
