"""WebHDFS through fsspec, with features that its own class lacks.

Time-outs, and a file written in one append instead of one per piece. A range that is read without
buffering, a rename onto an existing file, and `rmdir`. The name of the Java exception in each
error, which shows whether a repetition helps.

Imported only where it is used: requests is an extra. Source: the WebHDFS REST API of Hadoop 3.4.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO
from urllib.parse import quote

import requests
from crc32c import crc32c
from fsspec.implementations.webhdfs import WebHDFS
from requests.adapters import HTTPAdapter

from rsm_plugins.fsspec.source import chunks
from rsm_plugins.layout.objects import ObjectFacts

_CONNECTIONS_MAX = 64
_OPTION_NAMES = {"replication": "replication", "block_size": "blocksize"}


class WebHdfsFileSystem(WebHDFS):  # type: ignore[misc]  # fsspec has no types
    """WebHDFS with time-outs."""

    cachable = False

    def __init__(self, host: str, port: int, *, timeout_s: float, **options: Any) -> None:
        """Make it; `options` are those of fsspec's class. Sends nothing yet."""
        self._timeout_s = timeout_s
        super().__init__(host, port, **options)

    def upload(
        self,
        path: str,
        head: bytes,
        source: BinaryIO,
        options: Mapping[str, Any],
        before_chunk: Callable[[], object],
    ) -> ObjectFacts:
        """Write a whole file: `head` and the rest of `source`; closed when this returns.

        `before_chunk` is called before each MiB, and may raise.

        The file is first created empty and then appended to. A DataNode may read a request long
        after its sender gave up, and must find nothing to append to once the file was deleted.
        """
        size = crc = 0

        def body() -> Iterator[bytes]:
            nonlocal size, crc
            for chunk in chunks(head, source):
                before_chunk()
                crc = crc32c(chunk, crc)
                size += len(chunk)
                yield chunk

        wanted = {_OPTION_NAMES[name]: value for name, value in options.items()}
        headers = {"content-type": "application/octet-stream"}
        made = self._place("CREATE", "put", path, overwrite="true", **wanted)
        _checked(self.session.put(made, headers=headers))
        if head:
            place = self._place("APPEND", "post", path)
            _checked(self.session.post(place, data=body(), headers=headers))
        return ObjectFacts(size, crc)

    def cat_file(self, path: str, start: int = 0, end: int | None = None, **_: Any) -> bytes:
        """Bytes `[start, end)` of a file."""
        length = {} if end is None else {"length": end - start}
        content: bytes = _checked(
            self.session.get(self._place("OPEN", "get", path, offset=start, **length))
        ).content
        return content

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Rename a file, in place of any other."""
        self._call("RENAME", "put", path1, destination=path2, renameoptions="OVERWRITE")

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._call("DELETE", "delete", path, recursive="false")

    def _place(self, operation: str, method: str, path: str, **parameters: Any) -> str:
        """The DataNode's URL for an operation on bytes."""
        answer = self._call(operation, method, path, redirect=False, **parameters)
        if "Location" not in answer.headers:
            raise ValueError(f"no DataNode was named for {operation}: an HttpFS gateway?")
        location: str = self._apply_proxy(answer.headers["Location"])
        return location

    def _connect(self) -> None:
        super()._connect()
        adapter = _TimedAdapter(self._timeout_s)
        self.session.mount("http://", adapter)
        self.session.mount("https://", adapter)

    def _call(
        self,
        op: str,
        method: str = "get",
        path: str | None = None,
        data: bytes | None = None,
        redirect: bool = True,
        **parameters: Any,
    ) -> requests.Response:
        path = self._strip_protocol(path) if path is not None else ""
        return _checked(
            self.session.request(
                method.upper(),
                self._apply_proxy(self.url + quote(path, safe="/=")),
                params={**parameters, **self.pars, "op": op},
                data=data,
                allow_redirects=redirect,
            )
        )


class _TimedAdapter(HTTPAdapter):
    """Sets a time-out for connecting and for each wait on a socket, on every request."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        super().__init__(pool_maxsize=_CONNECTIONS_MAX)

    def send(self, request: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        if options.get("timeout") is None:
            options["timeout"] = self._timeout_s
        return super().send(request, **options)


def _checked(answer: requests.Response) -> requests.Response:
    """The answer, unless it reports a failure.

    Raises:
        FileNotFoundError: There is no such file.
        RuntimeError: Any other error of Hadoop; names the Java exception.
        requests.HTTPError, ValueError: An error that is not Hadoop's.
    """
    if answer.status_code < 400:
        return answer
    try:
        remote = answer.json()["RemoteException"]
        java_class, message = remote["javaClassName"], remote["message"]
    except (ValueError, KeyError, TypeError):
        if answer.status_code == 404:  # of a proxy, or a wrong port: it concerns no file
            raise ValueError(f"a 404 that is not Hadoop's: {answer.url[:200]}") from None
        answer.raise_for_status()
        raise AssertionError("unreachable: the status is an error") from None
    first_line = str(message).partition("\n")[0]
    if java_class == "java.io.FileNotFoundException":
        raise FileNotFoundError(first_line)
    raise RuntimeError(f"{java_class}: {first_line}")
