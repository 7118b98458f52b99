"""The plugin for any URL that fsspec supports: `s3://`, `gs://`, `az://`, `sftp://`, `file://` ...

It reads its settings, makes the file system and passes it to `fsspec.objects.FsspecStore`. Settings
that begin with `option.` are options of the file system. Their values are JSON if they parse as
JSON (`true`, `15`, `{"region_name": "eu-west-1"}`), else text. Messages never contain a password in
the URL, or the value of an option whose name contains `secret`, `password`, `token`, `key` or the
like.

Must not know: segments; how an object is written.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.fsspec.calls import CallLimits
from rsm_plugins.fsspec.errors import Meaning, hidden, meaning_of, shown
from rsm_plugins.fsspec.objects import LOCAL, SHOWN_WHOLE, FsspecStore
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.settings import Setting, choice, integer, text
from runtime.override import override
from runtime.version import install_command

_OPTION = "option."
_ATTEMPTS = 4
_REPEAT_THEMSELVES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Protocols whose libraries repeat requests with growing waits; repetitions here would multiply."""
_SECRET_WORDS = ("secret", "pass", "token", "key", "credential", "connection_string", "sas")

REQUEST_TIMEOUT = integer(
    "request.timeout.ms",
    "Deadline of one call of the file system (a piece read or written, a name looked up); past it"
    " the call fails and may be repeated.",
    default=30_000,
    low=100,
    high=3_600_000,
)
TIMES = (
    REQUEST_TIMEOUT,
    integer(
        "api.call.timeout.ms",
        "Longest time for one request (a piece read, an object written, a key deleted) with its"
        " repetitions; no attempt begins later. A transfer may take this long for every 8 MiB.",
        default=60_000,
        low=100,
        high=3_600_000,
    ),
    integer(
        "api.call.attempts",
        "Attempts of one request, the first included; only failures that may pass are repeated."
        f" 0: {_ATTEMPTS}, and 1 where the store's library repeats by itself (S3, Google, Azure).",
        default=0,
        low=0,
        high=20,
    ),
)
OPTIONS = text(
    "option.*",
    "Options of the fsspec file system, one key each: `option.endpoint_url`, `option.anon` ... A"
    " value is read as JSON where it is JSON, else as text.",
    allowed="what the file system takes",
    secret=True,
)

_PASSWORD = re.compile(r"\w+://[^:/@]*:(.+)@")
_HDFS = frozenset({"hdfs", "viewfs", "webhdfs", "swebhdfs", "arrow_hdfs"})


class FsspecRemoteStorageManager(LayoutStorageManager):
    """Keeps remote segments in the store that `url` names."""

    SETTINGS: ClassVar[Sequence[Setting]] = (
        text(
            "url",
            "The root of the store, such as `s3://bucket/prefix` or `sftp://host/dir`; needs the"
            " library that fsspec names for it (the extra `fsspec` brings that of S3).",
            allowed="protocol://path",
            required=True,
        ),
        choice(
            "atomic.put",
            "How an object becomes visible only when it is whole: `direct` where the store sees to"
            " it (object stores), `rename` writes under a temporary name and moves; `auto` knows"
            " the usual protocols and takes `rename` for others.",
            ("auto", "direct", "rename"),
            default="auto",
        ),
        *TIMES,
        OPTIONS,
    )

    def __init__(self) -> None:
        super().__init__()
        self.options: Mapping[str, Any] = {}
        self._place = ""

    def store_place(self) -> str:
        """The URL without user, password and query."""
        return self._place

    @override
    def configure(self, configs: Mapping[str, str]) -> None:
        self.options = {
            name.removeprefix(_OPTION): _typed(value)
            for name, value in configs.items()
            if name.startswith(_OPTION)
        }
        super().configure({n: v for n, v in configs.items() if not n.startswith(_OPTION)})
        url = urlsplit(configs["url"].strip())
        host = url.netloc.rpartition("@")[2]
        self._place = f"{url.scheme}://{host}{url.path.rstrip('/')}"

    @override
    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        url = values["url"]
        secret_values = tuple(secrets_of(url, self.options))
        protocol = url.partition("://")[0]
        if protocol in _HDFS:
            raise ValueError(
                f"rsm.config.url: {protocol}:// needs the class"
                " rsm_plugins.hdfs:HdfsRemoteStorageManager"
            )
        how = values["atomic.put"]
        if how == "direct" and protocol in LOCAL:
            raise ValueError(f"rsm.config.atomic.put=direct: allowed with {protocol}:// is rename")
        fs, root = connect(url, self.options, secret_values)
        store = FsspecStore(
            fs,
            root,
            rename=how == "rename" or (how == "auto" and protocol not in SHOWN_WHOLE),
            limits=limits_of(values, protocol),
            secret_values=secret_values,
        )
        store.check()
        return store


def connect(url: str, options: Mapping[str, Any], secret_values: Sequence[str]) -> tuple[Any, str]:
    """Make the file system of a URL.

    Returns:
        The file system, without caches, and the URL's path in it.

    Raises:
        ValueError: The URL or an option is wrong, or a library is missing.
        RemoteStorageError, RetriableRemoteStorageError: The store cannot be reached.
    """
    wrong = f"rsm.config.url={hidden(url.partition('?')[0], secret_values)}"
    try:
        from fsspec.core import url_to_fs
        from fsspec.dircache import DirCache
    except ImportError:
        raise ValueError(f"{wrong}: needs fsspec: {install_command('fsspec')}") from None
    if "://" not in url or "::" in url.partition("://")[0]:
        # No chains either: their caches do not see writes and deletions of other brokers.
        raise ValueError(f"{wrong}: allowed is protocol://path")
    try:
        fs, root = url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError as e:
        raise ValueError(
            f"{wrong}: {shown(e, secret_values)} ({install_command('fsspec')} brings s3fs)"
        ) from None
    except (ValueError, TypeError, KeyError) as e:
        raise ValueError(f"{wrong}: {shown(e, secret_values)}") from None
    except Exception as e:  # noqa: BLE001 - libraries behind fsspec have no common error
        retriable = meaning_of(e) is Meaning.RETRIABLE
        error = RetriableRemoteStorageError if retriable else RemoteStorageError
        raise error(f"{wrong}: {shown(e, secret_values)}") from None
    if not root.strip("/"):
        raise ValueError(f"{wrong}: allowed is protocol://path with a bucket or a directory")
    fs.dircache = DirCache(use_listings_cache=False)
    return fs, root


def limits_of(values: Mapping[str, Any], protocol: str) -> CallLimits:
    """The limits of calls and requests in the settings."""
    attempts = values["api.call.attempts"] or (1 if protocol in _REPEAT_THEMSELVES else _ATTEMPTS)
    return CallLimits(
        values["request.timeout.ms"] / 1_000, values["api.call.timeout.ms"] / 1_000, attempts
    )


def secrets_of(url: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Secrets for `hidden`: passwords and keys in the URL and the options."""
    found = _PASSWORD.match(url)
    if found:
        yield from {found[1], unquote(found[1])}
    query = url.partition("?")[2]
    if "=" in query:  # for example a signature
        yield query
    yield from _secret_values(options, is_secret=False)


def _secret_values(value: Any, *, is_secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            named = any(word in str(name).lower() for word in _SECRET_WORDS)
            yield from _secret_values(inner, is_secret=is_secret or named)
    elif is_secret and isinstance(value, (str, int)) and not isinstance(value, bool):
        yield str(value)


def _typed(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
