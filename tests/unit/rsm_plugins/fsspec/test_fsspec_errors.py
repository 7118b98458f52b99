import errno

import aiohttp
import pytest
import requests
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from fsspec import AbstractFileSystem

from rsm_plugins.fsspec.errors import Meaning, hidden, meaning_of, passes, shown
from rsm_plugins.fsspec.plugin import connect, secrets_of


def s3(code: str, status: int) -> Exception:
    """As s3fs raises it: an OSError whose cause is botocore's."""
    error = OSError(errno.EINVAL, "translated")
    error.__cause__ = ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject"
    )
    return error


def http(status: int) -> Exception:
    answer = requests.Response()
    answer.status_code = status
    return requests.HTTPError(response=answer)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("x"),
        OSError(errno.ENOENT, "x"),
        s3("NoSuchKey", 404),
        s3("404", 404),
        http(404),
        RuntimeError('RPCError("java.io.FileNotFoundException", "x")'),
    ],
    ids=repr,
)
def test_not_found(error: Exception) -> None:
    assert meaning_of(error) is Meaning.NOT_FOUND


@pytest.mark.parametrize(
    "error",
    [
        PermissionError("x"),
        OSError(errno.EROFS, "x"),
        ValueError("x"),
        TypeError("x"),
        ImportError("x"),
        RecursionError("x"),
        NoCredentialsError(),
        s3("NoSuchBucket", 404),
        s3("AccessDenied", 403),
        s3("InvalidAccessKeyId", 403),
        s3("InvalidRequest", 400),
        http(401),
        RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "no")'),
        RuntimeError("org.apache.hadoop.security.AccessControlException: no"),
        RuntimeError('SASLError("x")'),
        RuntimeError('InvalidArgument("x")'),
    ],
    ids=repr,
)
def test_fatal(error: Exception) -> None:
    assert meaning_of(error) is Meaning.FATAL


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("x"),
        ConnectionResetError("x"),
        OSError("no number"),
        OSError(errno.ENOSPC, "x"),
        s3("SlowDown", 503),
        s3("InternalError", 500),
        s3("RequestTimeout", 400),
        s3("IncompleteBody", 400),
        http(429),
        http(503),
        EndpointConnectionError(endpoint_url="http://x"),
        aiohttp.ClientPayloadError("cut"),
        RuntimeError('RPCError("org.apache.hadoop.ipc.StandbyException", "x")'),
        RuntimeError("org.apache.hadoop.hdfs.server.namenode.SafeModeException: x"),
        RuntimeError('DataTransferError("x")'),
        RuntimeError("anything"),
    ],
    ids=repr,
)
def test_retriable(error: Exception) -> None:
    assert meaning_of(error) is Meaning.RETRIABLE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError("x"), True),
        (TimeoutError("x"), True),
        (OSError(errno.ESTALE, "x"), True),
        (s3("SlowDown", 503), True),
        (http(503), True),
        (RuntimeError('RPCError("org.apache.hadoop.ipc.StandbyException", "x")'), True),
        (OSError(errno.ENOSPC, "x"), False),
        (OSError(errno.EDQUOT, "x"), False),
        (RuntimeError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: x"), False),
        (FileNotFoundError("x"), False),
        (s3("NoSuchKey", 404), False),
        (PermissionError("x"), False),
        (http(403), False),
        (ValueError("x"), False),
    ],
    ids=repr,
)
def test_what_passes_within_seconds(error: Exception, expected: bool) -> None:
    assert passes(error) is expected


def test_a_library_that_says_no_space_of_a_busy_store_is_not_believed() -> None:
    error = OSError(errno.ENOSPC, "translated")
    error.__cause__ = s3("SlowDown", 503).__cause__
    assert passes(error)


def test_an_operation_that_a_file_system_does_not_offer_is_fatal() -> None:
    with pytest.raises(RuntimeError) as caught:
        AbstractFileSystem().cp_file("a", "b")
    assert meaning_of(caught.value) is Meaning.FATAL


def test_credentials_are_never_shown() -> None:
    error = OSError("cannot reach sftp://joe:pass word@host/x with key AKIA1234\nat line 1")
    assert "pass" not in shown(OSError("ftp://joe:pass@host"))
    text = shown(error, ["AKIA1234"])
    assert "AKIA1234" not in text
    assert "line 1" not in text
    assert hidden("s3://bucket/a@b") == "s3://bucket/a@b"


@pytest.mark.parametrize(
    "name",
    [
        "delegation",
        "sig",
        "X-Amz-Signature",
        "X-Amz-Security-Token",
        "x-goog-credential",
        "client_secret",
        "api-key",
        "password",
    ],
)
def test_what_signs_a_url_is_not_shown(name: str) -> None:
    error = OSError(f"Max retries exceeded with url: /v1/a?op=OPEN&{name}=s3cr3t%2F&offset=7 (x)")
    assert shown(error).endswith(f"url: /v1/a?op=OPEN&{name}=***&offset=7 (x)")


@pytest.mark.parametrize("url", ["nosuch://u/x?k=s3cr3t", "nosuch://?s3cr3t=x", "x?k=s3cr3t"])
def test_the_query_of_a_url_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"^rsm\.config\.url=") as refused:
        connect(url, {}, tuple(secrets_of(url, {})))
    assert "s3cr3t" not in str(refused.value)
