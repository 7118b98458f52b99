"""What an error of S3 means, and what is told about it."""

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    SSLError,
)

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.s3.errors import error_class, storage_error

FATAL, RETRIABLE, GONE = (
    RemoteStorageError,
    RetriableRemoteStorageError,
    RemoteResourceNotFoundError,
)
DOING = "get_object of s3://bucket/key"


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, GONE),
        ("404", 404, GONE),
        ("NoSuchBucket", 404, FATAL),
        ("NoSuchUpload", 404, RETRIABLE),
        ("AccessDenied", 403, FATAL),
        ("403", 403, FATAL),
        ("InvalidAccessKeyId", 403, FATAL),
        ("SignatureDoesNotMatch", 403, FATAL),
        ("ExpiredToken", 400, FATAL),
        ("RequestTimeTooSkewed", 403, FATAL),
        ("PermanentRedirect", 301, FATAL),
        ("InvalidObjectState", 403, FATAL),
        ("NotImplemented", 501, FATAL),
        ("InvalidArgument", 400, FATAL),
        ("SomethingNew", 400, FATAL),
        ("InternalError", 500, RETRIABLE),
        ("500", 500, RETRIABLE),
        ("502", 502, RETRIABLE),
        ("SlowDown", 503, RETRIABLE),
        ("ServiceUnavailable", 503, RETRIABLE),
        ("504", 504, RETRIABLE),
        ("XMinioStorageFull", 507, RETRIABLE),
        ("RequestTimeout", 400, RETRIABLE),
        ("BadDigest", 400, RETRIABLE),
        ("XAmzContentChecksumMismatch", 400, RETRIABLE),
        ("IncompleteBody", 400, RETRIABLE),
        ("OperationAborted", 409, RETRIABLE),
        ("ConditionalRequestConflict", 409, RETRIABLE),
        ("TooManyRequests", 429, RETRIABLE),
        ("InternalError", 0, RETRIABLE),  # one key of a batch: there is no status
        ("AccessDenied", 0, FATAL),
    ],
)
def test_every_answer_has_its_class(
    code: str, status: int, expected: type[RemoteStorageError]
) -> None:
    assert error_class(code, status) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EndpointConnectionError(endpoint_url="http://x/"), RETRIABLE),
        (ConnectTimeoutError(endpoint_url="http://x/"), RETRIABLE),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), RETRIABLE),
        (SSLError(endpoint_url="https://x/", error="EOF occurred"), RETRIABLE),
        (SSLError(endpoint_url="https://x/", error="CERTIFICATE_VERIFY_FAILED"), FATAL),
        (NoCredentialsError(), FATAL),
        (NoRegionError(), FATAL),
    ],
)
def test_errors_without_an_answer_have_their_class(
    error: Exception, expected: type[RemoteStorageError]
) -> None:
    assert type(storage_error(error, DOING)) is expected


@pytest.mark.parametrize(
    ("code", "status", "named"),
    [
        ("NoSuchBucket", 404, "rsm.config.bucket"),
        ("AccessDenied", 403, "s3:ListBucket"),
        ("InvalidAccessKeyId", 403, "AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, "rsm.config.profile"),
        ("PermanentRedirect", 301, "rsm.config.region"),
        ("NotImplemented", 501, "rsm.config.checksum=none"),
    ],
)
def test_a_message_names_what_was_done_and_the_remedy(code: str, status: int, named: str) -> None:
    message = str(storage_error(answered(code, status, "words"), DOING, sent_checksum=True))
    assert DOING in message
    assert code in message
    assert named in message


def test_words_of_the_store_about_credentials_are_not_repeated() -> None:
    secret = "AKIAEXAMPLE signed d34db33f"
    message = str(storage_error(answered("SignatureDoesNotMatch", 403, secret), DOING))
    assert "AKIA" not in message
    assert "d34db33f" not in message


def answered(code: str, status: int, words: str) -> ClientError:
    answer = {
        "Error": {"Code": code, "Message": words},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "GetObject")  # type: ignore[arg-type]
