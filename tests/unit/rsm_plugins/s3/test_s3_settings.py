"""Settings for S3: what goes together, and what a wrong one says."""

import subprocess
import sys

import pytest

from rsm_plugins.s3.settings import SETTINGS, S3Options, s3_options
from rsm_plugins.s3.store import S3Store
from rsm_plugins.settings import read_settings


def options(**written: str) -> S3Options:
    given = {"bucket": "b"} | {name.replace("_", "."): value for name, value in written.items()}
    return s3_options(read_settings(SETTINGS, given))


@pytest.mark.parametrize(
    ("style", "endpoint", "expected"),
    [
        ("auto", "", None),
        ("auto", "http://store:9000", True),
        ("true", "", True),
        ("false", "http://store:9000", False),
    ],
)
def test_a_store_that_is_not_aws_has_its_buckets_in_the_path(
    style: str, endpoint: str, expected: bool | None
) -> None:
    assert options(path_style_access=style, endpoint_url=endpoint).path_style is expected


@pytest.mark.parametrize(
    ("written", "expected"), [("", ""), ("/", ""), ("a", "a/"), ("/a/b/", "a/b/")]
)
def test_a_prefix_is_a_folder(written: str, expected: str) -> None:
    assert options(prefix=written).prefix == expected


def test_encryption_and_class_go_with_every_object() -> None:
    made = options(sse="aws:kms", sse_kms_key_id="k", storage_class="STANDARD_IA")
    assert made.write_params == {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "k",
        "StorageClass": "STANDARD_IA",
    }
    assert options().write_params == {}


def test_authorities_count_only_where_certificates_are_checked() -> None:
    assert options(tls_ca_file="/ca.pem").verify == "/ca.pem"
    assert options(tls_ca_file="/ca.pem", tls_verify="false").verify is False


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ({"prefix": "a/../b"}, "rsm.config.prefix"),
        ({"endpoint.url": "store:9000"}, "rsm.config.endpoint.url"),
        ({"endpoint.url": "ftp://store"}, "rsm.config.endpoint.url"),
        ({"sse.kms.key.id": "k"}, "rsm.config.sse.kms.key.id"),
        ({"sse": "AES256", "sse.kms.key.id": "k"}, "rsm.config.sse=AES256"),
        ({"storage.class": "DEEP_ARCHIVE"}, "rsm.config.storage.class"),
        ({"storage.class": "no class"}, "rsm.config.storage.class"),
        ({"upload.part.size.bytes": "1000"}, "5242880"),
        ({"prefix.entropy.chars": "9"}, "0 to 8"),
        ({"checksum": "md5"}, "crc32c, none"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(written: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match="allowed") as refused:
        s3_options(read_settings(SETTINGS, {"bucket": "b", **written}))
    assert named in str(refused.value)


def test_a_password_in_the_endpoint_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="do not belong here") as refused:
        options(endpoint_url="https://me:hunter2@store")
    assert "hunter2" not in str(refused.value)


def test_a_file_of_authorities_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"rsm\.config\.tls\.ca\.file=/no/such\.pem"):
        S3Store(options(tls_ca_file="/no/such.pem"))


def test_a_profile_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"rsm\.config\.profile=nobody"):
        S3Store(options(profile="nobody"))


def test_a_bucket_must_be_named() -> None:
    with pytest.raises(ValueError, match=r"rsm\.config\.bucket is missing"):
        read_settings(SETTINGS, {})


def test_settings_are_known_where_boto3_is_not_installed() -> None:
    script = """
import sys
sys.modules["boto3"] = sys.modules["botocore"] = None
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.s3.plugin import S3RemoteStorageManager
assert S3RemoteStorageManager.SETTINGS
try:
    S3RemoteStorageManager().configure({"bucket": "b"})
except RemoteStorageError as e:
    print(e)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'DIRECTORY-OF-THE-CLONE[s3]'" in done.stdout
