"""Fixtures that several kinds of tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness_s3 import S3Endpoint


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Endpoint]":
    """A real S3 endpoint, started for the first test that asks; take a bucket of your own."""
    from harness_s3 import running_s3  # boto3 loads slowly, most tests need none

    with running_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint
