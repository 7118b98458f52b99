"""The meaning of an error of any fsspec file system: not found, fatal, or retriable.

Each library behind fsspec has its own errors: OSError with and without a number, an HTTP status,
an AWS error code, a Java class name inside a RuntimeError. One table covers all, by attributes and
names, so that no library need be imported here. An unknown error is retriable: a store that fails
permanently keeps failing.

The tier repeats retriable errors without end, with pauses of minutes. `passes` selects those that
the plugin itself repeats within seconds: all but a full disk, a quota, and a limit of this process.

Pure. Must not know: which operation failed.
"""

import errno
import re
from collections.abc import Iterable, Iterator
from enum import Enum

_CAUSES_MAX = 8
_SHOWN_MAX = 400
_SECRET_CHARS_MIN = 4
_USER_INFO = re.compile(r"(\w+://)(?:[^/\s@]+|\S*:\S*)@")
"""Also of a password with a slash, which should have been written as %2F."""
_SIGNED = re.compile(
    r"(?i)([?&](?:delegation|sig|[\w-]*(?:signature|token|credential|secret|password|key))=)"
    r"[^&\s'\"]+"
)
"""Parts of a URL that grant access to anyone who has it: HDFS's redirects, signed URLs of object
stores."""
_JAVA_CLASS = re.compile(r"\b(?:java|javax|org)(?:\.\w+)*\.(\w+(?:Exception|Error|Token))\b")


class Meaning(Enum):
    """The consequence of an error for the caller."""

    NOT_FOUND = "not found"
    FATAL = "fatal"
    RETRIABLE = "retriable"


_F, _N, _R = Meaning.FATAL, Meaning.NOT_FOUND, Meaning.RETRIABLE

_S3_CODES = {
    # 404 both, but a missing bucket says nothing about an object.
    "NoSuchBucket": _F,
    "NoSuchKey": _N,
    # 4xx that pass: the request was too frequent, cut or late.
    "SlowDown": _R,
    "RequestTimeout": _R,
    "RequestTimeTooSkewed": _R,
    "IncompleteBody": _R,
    "BadDigest": _R,
    "OperationAborted": _R,
    "ExpiredToken": _R,  # the library's chain of credentials fetches new ones
    "TokenRefreshRequired": _R,
}
_STATUSES = {404: _N, 408: _R, 409: _R, 425: _R, 429: _R}
_NAMES = {
    "NoCredentialsError": _F,
    "PartialCredentialsError": _F,
    "ParamValidationError": _F,
    "ProfileNotFound": _F,
    "SSLCertVerificationError": _F,
    "InvalidURL": _F,
    "DefaultCredentialsError": _F,
    "ClientAuthenticationError": _F,
    "AuthenticationException": _F,
}
"""Classes of botocore, ssl, aiohttp, google, azure and paramiko that are fatal, by name."""
_JAVA_NAMES = {
    "FileNotFoundException": _N,
    "AccessControlException": _F,
    "AuthorizationException": _F,
    "SecurityException": _F,
    "SaslException": _F,
    "InvalidToken": _F,
    "InvalidPathException": _F,
    "ParentNotDirectoryException": _F,
    "UnsupportedOperationException": _F,
    "IllegalArgumentException": _F,
    "UnresolvedLinkException": _F,
}
"""Exceptions of Hadoop; all others pass: safe mode, standby, a lost lease, no live DataNode."""
_HDFS_NATIVE_FATAL = ("InvalidPath(", "InvalidArgument(", "UrlParseError(", "XmlParseError(")
_HDFS_NATIVE_LOGIN = ("SASLError(", "GSSAPIError(", "NoSASLMechanism")
_ERRNOS = {
    errno.EACCES: _F,
    errno.EPERM: _F,
    errno.EROFS: _F,
    errno.ENAMETOOLONG: _F,
    errno.ELOOP: _F,
    errno.ENOTDIR: _F,
    errno.EISDIR: _F,
    errno.ENOSYS: _F,
    errno.ENOENT: _N,
}
_STAYS_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}
_STAYS_JAVA_NAMES = {
    "DSQuotaExceededException",
    "NSQuotaExceededException",
    "QuotaByStorageTypeExceededException",
    "QuotaExceededException",
    "MaxDirectoryItemsExceededException",
    "PathComponentTooLongException",
    "FSLimitException",
}
"""Retriable, since a person may make room; but not within seconds."""
_TYPES: tuple[tuple[type[BaseException], Meaning], ...] = (
    (FileNotFoundError, _N),
    (PermissionError, _F),
    (NotADirectoryError, _F),
    (IsADirectoryError, _F),
    (ImportError, _F),
    (AssertionError, _F),
    (TypeError, _F),
    (AttributeError, _F),
    (ConnectionError, _R),
    (TimeoutError, _R),
    (UnicodeError, _F),
)


def meaning_of(error: BaseException) -> Meaning:
    """The meaning of an error of a file system."""
    for each in _causes(error):
        found = _by_what_it_carries(each)
        if found is not None:
            return found
    for kind, meaning in _TYPES:
        if isinstance(error, kind):
            return meaning
    if isinstance(error, RuntimeError) and type(error).__module__ == "builtins":
        # Python's own subclasses: an operation that the file system lacks, or a bug.
        return _R if type(error) is RuntimeError else _F
    if isinstance(error, OSError):
        return _ERRNOS.get(error.errno or 0, _R)
    return _F if isinstance(error, ValueError) else _R


def passes(error: BaseException) -> bool:
    """True if an error may be gone within seconds: then the request is worth a repetition."""
    if meaning_of(error) is not Meaning.RETRIABLE:
        return False
    for each in _causes(error):
        if _by_what_it_carries(each) is not None:  # the store's own error, not a library's errno
            java = _JAVA_CLASS.search(str(each))
            return java is None or java[1] not in _STAYS_JAVA_NAMES
    return not (isinstance(error, OSError) and error.errno in _STAYS_ERRNOS)


def s3_code(error: BaseException) -> str:
    """S3's error code in an error or its causes; empty if there is none."""
    for each in _causes(error):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def shown(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Class and first line of an error, without credentials."""
    text = next(iter(str(error).splitlines()), "")
    name = type(error).__name__
    return hidden(f"{name}: {text}" if text else name, secrets)[:_SHOWN_MAX]


def hidden(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without passwords and signatures in URLs, and without the given secrets."""
    text = _SIGNED.sub(r"\1***", _USER_INFO.sub(r"\1***@", text))
    for secret in secrets:
        if len(secret) >= _SECRET_CHARS_MIN:
            text = text.replace(secret, "***")
    return text


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, outermost first."""
    each: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if each is None:
            return
        yield each
        each = each.__cause__


def _by_what_it_carries(error: BaseException) -> Meaning | None:
    name = type(error).__name__
    if name in _NAMES:
        return _NAMES[name]
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        code = str(response.get("Error", {}).get("Code", ""))
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return _S3_CODES.get(code) or _by_status(status)
    for status in (
        getattr(response, "status_code", None),  # requests
        getattr(error, "status_code", None),  # azure
        getattr(error, "status", None),  # aiohttp
        getattr(error, "code", None),  # gcsfs
    ):
        found = _by_status(status)
        if found is not None:
            return found
    return _by_hdfs(str(error)) if isinstance(error, RuntimeError) else None


def _by_status(status: object) -> Meaning | None:
    try:
        number = int(status)  # type: ignore[call-overload] # of any type
    except (TypeError, ValueError):
        return None
    if not 400 <= number <= 599:
        return None
    return _STATUSES.get(number, _R if number >= 500 else _F)


def _by_hdfs(text: str) -> Meaning | None:
    if text.startswith((*_HDFS_NATIVE_FATAL, *_HDFS_NATIVE_LOGIN)):
        return _F
    java = _JAVA_CLASS.search(text)
    return _JAVA_NAMES.get(java[1], _R) if java else None
