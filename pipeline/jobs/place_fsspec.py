"""Places on S3 and HDFS, through fsspec; credentials are found by each library itself."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

from pipeline.errors import MissingPackageError, OptionError, StoreUnreachableError
from pipeline.jobs.place import LocalPlace, Place
from runtime.override import override
from runtime.version import install_command

_S3: Final = ("s3", "s3a", "s3n")
_HDFS: Final = ("hdfs",)
_EXTRAS: Final = {"s3": "fsspec", "hdfs": "hdfs"}


def open_place(url: str) -> Place:
    """The place of a URL: a directory, `file://`, `s3://bucket/prefix` or `hdfs://host:port/dir`.

    Others are refused: a commit needs a store on which one of two writers fails.

    Raises:
        OptionError: the URL is of another kind, or names no directory.
        MissingPackageError: the library of the store is not installed.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if scheme == "" or (len(scheme) == 1 and not parts.netloc):
        return LocalPlace(Path(url))
    if scheme == "file":
        return LocalPlace(Path(unquote(parts.path)))
    if scheme in _S3 and parts.netloc:
        return S3Place(f"s3://{parts.netloc}/{parts.path.strip('/')}".rstrip("/"))
    if scheme in _HDFS and parts.netloc:
        return HdfsPlace(url.rstrip("/"))
    shown = f"{scheme}://{parts.hostname or ''}{parts.path}"[:200]
    raise OptionError(
        f"{shown}: an export can be written to a directory, file:///dir, s3://bucket/prefix or"
        " hdfs://host:port/dir"
    )


class _FsspecPlace(Place):
    """The base of S3 and HDFS. The file system is opened in each process when it is needed."""

    protocol = ""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: Any = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._url,)

    @property
    @override
    def url(self) -> str:
        return self._url

    @property
    def _fs(self) -> Any:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Any:
        try:
            import fsspec

            return fsspec.filesystem(self.protocol, **self._options())
        except ImportError as error:
            extra = _EXTRAS[self.protocol]
            raise MissingPackageError(
                f"{self._url} needs packages that are not installed here ({error.name}):"
                f" {install_command(extra)}"
            ) from error

    def _options(self) -> dict[str, Any]:
        return {}

    def _path(self, path: str) -> str:
        return f"{self._url}/{path}"

    @override
    def names(self, directory: str) -> list[str]:
        with suppress(FileNotFoundError):
            found = self._fs.ls(self._path(directory), detail=False)
            return sorted(name for path in found if (name := path.rstrip("/").split("/")[-1]))
        return []

    @override
    def files(self, directory: str) -> dict[str, int]:
        found: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            found = self._fs.find(self._path(directory), detail=True)
        prefix = self._fs._strip_protocol(self._path(directory)).rstrip("/") + "/"
        return {
            path.removeprefix(prefix): int(facts["size"])
            for path, facts in found.items()
            if path.startswith(prefix)
        }

    @override
    def read(self, path: str) -> bytes:
        data: bytes = self._fs.cat_file(self._path(path))
        return data

    @override
    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm(self._path(path), recursive=True)

    @override
    @contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        with self._fs.open(self._path(path), "wb") as file:
            yield file

    @override
    def location(self, path: str) -> str:
        return self._path(path)


class S3Place(_FsspecPlace):
    """A prefix of a bucket whose store knows conditional writes (If-None-Match)."""

    protocol = "s3"

    def _options(self) -> dict[str, Any]:
        return {"use_listings_cache": False}

    def names(self, directory: str) -> list[str]:
        """The first call of every export.

        Raises:
            StoreUnreachableError: no credentials, or no broker answers.
        """
        from botocore.exceptions import BotoCoreError

        try:
            return super().names(directory)
        except BotoCoreError as error:
            raise StoreUnreachableError(f"{self._url}: {error}") from error

    @override
    def create(self, path: str, data: bytes) -> bool:
        try:
            self._fs.pipe_file(self._path(path), data, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            if "PreconditionFailed" in str(error) or "pre-conditions" in str(error):
                return False
            raise
        return True

    def move(self, source: str, target: str) -> None:
        """A copy, which appears whole, and then a deletion."""
        try:
            self._fs.cp_file(self._path(source), self._path(target))
        except FileNotFoundError:
            return
        self.remove(source)


class HdfsPlace(_FsspecPlace):
    """A directory of HDFS."""

    protocol = "hdfs"

    def _options(self) -> dict[str, Any]:
        parts = urlsplit(self._url)
        return {"host": parts.hostname, "port": parts.port}

    def create(self, path: str, data: bytes) -> bool:
        """Of two renames to one name the second fails."""
        target = self._fs._strip_protocol(self._path(path))
        draft = f"{target}.{secrets.token_hex(8)}.draft"
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(draft, data)
        try:
            self._fs.client.rename(draft, target, False)
        except FileExistsError:
            self.remove_path(draft)
            return False
        return True

    def remove_path(self, full: str) -> None:
        """Remove a file by its path in the file system; an absent one is fine."""
        with suppress(FileNotFoundError):
            self._fs.rm(full)

    @override
    def move(self, source: str, target: str) -> None:
        to = self._fs._strip_protocol(self._path(target))
        self._fs.makedirs(to.rpartition("/")[0], exist_ok=True)
        with suppress(FileNotFoundError):
            self._fs.client.rename(self._fs._strip_protocol(self._path(source)), to, True)

    @override
    @contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        full = self._fs._strip_protocol(self._path(path))
        self._fs.makedirs(full.rpartition("/")[0], exist_ok=True)
        with super().writing(path) as file:
            yield file
