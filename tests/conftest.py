"""Fixtures that several kinds of tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness_hdfs import Hdfs
    from harness_s3 import S3Endpoint


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Endpoint]":
    """A real S3 endpoint, started for the first test that asks; take a bucket of your own."""
    from harness_s3 import running_s3  # boto3 loads slowly, most tests need none

    with running_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Hdfs]":
    """A real HDFS, started for the first test that asks; take a root of your own."""
    from harness_hdfs import running_hdfs, why_not  # few tests need it

    reason = why_not()
    if reason:
        pytest.skip(reason)
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as endpoint:
        yield endpoint
