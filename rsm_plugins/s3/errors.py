"""Failures of S3 that pass by themselves, and the messages for those that do not.

`error_class` is the table, from an error's code and HTTP status to the class that the tier acts on.
It is pure. `is_refusal` selects errors that mean that the store lacks the requested feature, under
any code. `storage_error` converts any error of the library. A message never contains credentials,
signatures, or the store's text about them.
"""

from collections.abc import Container, Mapping

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from kafka_protocol.errors import TidemarkError
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.settings import PREFIX

LIBRARY_ERRORS = (BotoCoreError, ClientError, ResponseParserError, HTTPError)
"""All errors of a call of the library, or of reading a body."""

_UNSUPPORTED = frozenset({"NotImplemented", "MethodNotAllowed", "501", "405"})
"""Codes and statuses of a store that lacks an operation or a header."""
DIGESTS = frozenset({"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})
"""For a damaged body; also for a body or checksum of a call that the store does not support."""

_RETRIABLE = frozenset(
    {
        *DIGESTS,
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "InvalidPart",
        "InvalidPartOrder",
        "KMS.ThrottlingException",
        "NoSuchUpload",  # the put begins again, with another upload
        "OperationAborted",
        "OperationTimedOut",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServerBusy",
        "ServiceUnavailable",
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "TooManyRequestsException",
    }
)
_NOT_FOUND = frozenset({"NoSuchKey", "NoSuchVersion"})
_RETRIABLE_STATUSES = frozenset({408, 409, 425, 429})
_FATAL_SERVER_STATUSES = frozenset({501, 505})

_CREDENTIALS = (
    "check the credentials that this process finds: AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY in its environment, the shared AWS files (profile:"
    f" {PREFIX}profile), or its role"
)
_RIGHTS = (
    "allow s3:ListBucket, s3:ListBucketMultipartUploads on the bucket and s3:GetObject,"
    " s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload on its objects (without s3:ListBucket"
    " a missing object looks like a forbidden one), and look that the bucket is yours"
)
_REGION = f"set {PREFIX}region to the bucket's region and look at {PREFIX}endpoint.url"
_BUCKET = f"make the bucket, or name another one in {PREFIX}bucket"
_CLOCK = "set this host's clock"
_TOO_LARGE = f"lower {PREFIX}upload.part.size.bytes, or the topic's segment.bytes"
CHECKSUM_WAY_OUT = f"if the store does not take CRC32C, set {PREFIX}checksum=none"
_WAYS_OUT: Mapping[str, str] = {
    "NoSuchBucket": _BUCKET,
    "InvalidBucketName": _BUCKET,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "TokenRefreshRequired": _CREDENTIALS,
    "AuthFailure": _CREDENTIALS,
    "RequestTimeTooSkewed": _CLOCK,
    "AccessDenied": _RIGHTS,
    "AllAccessDisabled": _RIGHTS,
    "403": f"{_RIGHTS}; or {_CREDENTIALS}",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "301": _REGION,
    "InvalidObjectState": "the object was moved to an archive class: restore it, and keep lifecycle"
    " rules of that kind away from this prefix",
    "InvalidStorageClass": f"set {PREFIX}storage.class to a class that the store has",
    "EntityTooSmall": f"raise {PREFIX}upload.part.size.bytes",
    "EntityTooLarge": _TOO_LARGE,
    "413": _TOO_LARGE,
}
_SIGNATURE = "SignatureDoesNotMatch"
"""Wrong credentials; also a store, or a proxy before it, that signs without a header of ours."""
_NOT_REFUSALS = frozenset(
    code
    for code, way in _WAYS_OUT.items()
    if way in {_CREDENTIALS, _RIGHTS, _WAYS_OUT["403"], _REGION, _BUCKET, _CLOCK}
) - {_SIGNATURE}
_ABOUT_SECRETS = frozenset(code for code, way in _WAYS_OUT.items() if way is _CREDENTIALS)
_WORDS_MAX = 200


def is_refusal(code: str, status: int) -> bool:
    """True if the store refuses an operation, its body or a header, permanently.

    No refusals are: a missing permission or bucket, wrong credentials, throttling, a time-out, a
    fault of the store, an object that is not there.

    Args:
        code: The answer's error code; the status as text if it has none.
        status: HTTP status, 0 if unknown.
    """
    if not _UNSUPPORTED.isdisjoint({code, str(status)}) or code == _SIGNATURE:
        return True
    if code in _NOT_REFUSALS or status in {301, 307, 401, 403, 404}:
        return False
    return error_class(code, status) is RemoteStorageError


def is_heard(code: str, status: int, hear: Container[str], *, refusals: bool) -> bool:
    """True if a caller that expects these codes and statuses, or refusals, gets this error.

    A status does not count where the code names a missing permission or bucket.
    """
    if code in hear:
        return True
    if code in _NOT_REFUSALS:
        return False
    return str(status) in hear or (refusals and is_refusal(code, status))


class RefusedError(TidemarkError):
    """The store answered with an error that the caller handles itself."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(f"{code} ({status})")
        self.code, self.status = code, status


def error_class(code: str, status: int) -> type[RemoteStorageError]:
    """The class of an error answer of S3.

    Args:
        code: The answer's error code; the status as text if it has none (HEAD).
        status: HTTP status, 0 if unknown.
    """
    if code in _NOT_FOUND or (status == 404 and code == "404"):
        return RemoteResourceNotFoundError
    if code in _RETRIABLE or status in _RETRIABLE_STATUSES:
        return RetriableRemoteStorageError
    if status >= 500 and status not in _FATAL_SERVER_STATUSES:
        return RetriableRemoteStorageError
    return RemoteStorageError


def status_in(code: str) -> int:
    """The HTTP status that some stores give as the code of one key; 0 for any other code."""
    return int(code) if code.isdecimal() else 0


def code_and_status(error: ClientError) -> tuple[str, int]:
    """The error code and the HTTP status of an error answer."""
    answer = error.response
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return str(answer.get("Error", {}).get("Code", status)), status


def storage_error(
    error: Exception, doing: str, *, sent_checksum: bool = False
) -> RemoteStorageError:
    """Our error for one of the library's; `doing` names operation, bucket and key."""
    if isinstance(error, ClientError):
        return _of_answer(error, doing, sent_checksum=sent_checksum)
    if isinstance(error, FlexibleChecksumError):
        return RemoteObjectDamagedError(f"{doing}: its bytes are not those of its checksum")
    what = f"{doing} failed: {type(error).__name__}: {str(error)[:_WORDS_MAX]}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return RemoteStorageError(f"{doing} failed: no credentials; {_CREDENTIALS}")
    if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return RemoteStorageError(f"{what}; name the authority's PEM file in {PREFIX}tls.ca.file")
    passing = (
        BotoConnectionError,
        HTTPClientError,
        IncompleteReadError,
        CredentialRetrievalError,
        MetadataRetrievalError,
        ResponseParserError,
        HTTPError,
    )
    if isinstance(error, passing):
        return RetriableRemoteStorageError(what)
    return RemoteStorageError(what)


def _of_answer(error: ClientError, doing: str, *, sent_checksum: bool) -> RemoteStorageError:
    code, status = code_and_status(error)
    if status == 404 and not _is_of_s3(error, code):
        # A proxy with a wrong path also answers 404: no object is missing by that, and none is
        # deleted.
        return RemoteStorageError(
            f"{doing} failed: a 404 that is not S3's; look at {PREFIX}endpoint.url"
        )
    words = str(error.response.get("Error", {}).get("Message", ""))[:_WORDS_MAX]
    message = f"{doing} failed: {code} ({status})"
    if words and code not in _ABOUT_SECRETS:
        message += f": {words}"
    if code in _WAYS_OUT:
        message += f"; {_WAYS_OUT[code]}"
    is_refused = is_refusal(code, status) or code in DIGESTS
    if sent_checksum and is_refused and _WAYS_OUT.get(code) in {None, _CREDENTIALS}:
        message += f"; {CHECKSUM_WAY_OUT}"
    return error_class(code, status)(message)


def _is_of_s3(error: ClientError, code: str) -> bool:
    """True if an error answer comes from a store, and not from a proxy before it."""
    if code and not code.isdecimal():
        return True
    answer = error.response.get("ResponseMetadata", {})
    is_head = error.operation_name.startswith("Head")  # its answers have no body
    return is_head or "x-amz-request-id" in answer.get("HTTPHeaders", {})
