"""The plugin for HDFS: the store of `fsspec.objects`, adapted to HDFS, over three drivers.

`hdfs-native` uses Hadoop's RPC without a JVM and reads `core-site.xml` and `hdfs-site.xml`, so
nameservices of several NameNodes work by their name. `webhdfs` uses HTTP, for networks that permit
nothing else. `libhdfs` is pyarrow's, for hosts with a Hadoop installation.

An object is written to a random name and closed. Then it is renamed into place, and replaces an
older one (atomically; libhdfs deletes the older one first). A dead writer holds the lease of its
temporary file only. The deletion of the segment recovers that lease and removes the file. Names are
random, so no writer ever waits for another's lease.

A closed file is in the page caches of all its replicas' DataNodes. To survive a power failure of
all of them at once, they need `dfs.datanode.synconclose=true` (no driver can request it).

With one replica `close` takes half a second instead of milliseconds. The NameNode must complete the
file before the DataNode has reported the last block, and hdfs-native asks again after a fixed 500
ms. The copying thread waits but uses no CPU, and with a pipeline of several DataNodes this is rare.

Must not know: segments.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, ClassVar
from urllib.parse import SplitResult, urlsplit

from rsm_plugins.api import RemoteStorageError
from rsm_plugins.fsspec.errors import hidden, shown
from rsm_plugins.fsspec.objects import COPYING_SUFFIX, FsspecStore
from rsm_plugins.fsspec.plugin import (
    OPTIONS,
    TIMES,
    FsspecRemoteStorageManager,
    limits_of,
    secrets_of,
)
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.settings import Setting, choice, integer, text
from runtime.override import override
from runtime.version import install_command

_DRIVERS = ("auto", "hdfs-native", "webhdfs", "libhdfs")
_WEB_SCHEMES = frozenset({"webhdfs", "swebhdfs"})


class HdfsRemoteStorageManager(FsspecRemoteStorageManager):
    """Keeps remote segments in a directory of HDFS."""

    SETTINGS: ClassVar[Sequence[Setting]] = (
        text(
            "url",
            "The root of the store: `hdfs://namenode:8020/dir`, `hdfs://nameservice/dir` (found in"
            " `$HADOOP_CONF_DIR`), `webhdfs://namenode:9870/dir` or `swebhdfs://` (TLS).",
            allowed="hdfs, webhdfs or swebhdfs URL",
            required=True,
        ),
        choice(
            "driver",
            "Client of HDFS; `auto`: `webhdfs` for its URLs, else `hdfs-native` where it is"
            " installed, else `libhdfs`.",
            _DRIVERS,
            default="auto",
        ),
        text("user", "Whom HDFS takes us for where it asks for no Kerberos ticket."),
        integer(
            "replication",
            "Copies of each block; 0: the cluster's default.",
            default=0,
            low=0,
            high=512,
        ),
        integer(
            "block.size.bytes",
            "Size of an HDFS block; 0: the cluster's default.",
            default=0,
            low=0,
            high=1 << 40,
        ),
        text(
            "config.dir",
            "Directory of core-site.xml and hdfs-site.xml for hdfs-native, in place of"
            " `$HADOOP_CONF_DIR` and `$HADOOP_HOME/etc/hadoop`.",
        ),
        text(
            "kerberos.principal",
            "Principal for hdfs-native where the cluster asks for Kerberos; not set: the ticket"
            " cache of `kinit`. The other drivers always take the cache.",
        ),
        text("kerberos.keytab", "File with the principal's key, for hdfs-native."),
        *TIMES,
        OPTIONS,
    )

    @override
    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        url = urlsplit(values["url"])
        secret_values = tuple(secrets_of(values["url"], self.options))
        wrong = f"rsm.config.url={hidden(values['url'], secret_values)}"
        if url.scheme not in {"hdfs", *_WEB_SCHEMES} or not (url.hostname and url.path.strip("/")):
            raise ValueError(
                f"{wrong}: allowed is {self.SETTINGS[0].allowed} with a host and a directory"
            )
        driver = _driver(values["driver"], url.scheme)
        if (driver == "webhdfs") != (url.scheme in _WEB_SCHEMES):
            raise ValueError(
                f"rsm.config.driver={driver}: allowed with {url.scheme}:// is another; webhdfs"
                " needs webhdfs://host:http-port, the others hdfs://host:rpc-port"
            )
        try:
            fs, kind = _OPEN[driver](url, values, self.options)
        except ImportError as e:
            raise ValueError(
                f"rsm.config.driver={driver}: {install_command('hdfs')} ({shown(e)})"
            ) from None
        except (OSError, RuntimeError, TypeError, ValueError) as e:
            text_ = shown(e, secret_values)
            raise RemoteStorageError(f"{wrong} with driver {driver}: {text_}") from None
        store = kind(
            fs,
            url.path,
            rename=True,
            limits=limits_of(values, url.scheme),
            secret_values=secret_values,
            file_options=_file_options(values),
        )
        store.check()
        return store


class NativeHdfsStore(FsspecStore):
    """HDFS through hdfs-native."""

    @override
    def move(self, temporary: str, target: str) -> None:
        self.calls.method("mv", temporary, target, overwrite=True)

    @override
    def release(self, temporary: str) -> None:
        # Closed long ago, or deleted: then there is no lease.
        with contextlib.suppress(OSError, RuntimeError):
            self.calls.call(self.fs.client.recover_lease, temporary)


class WebHdfsStore(FsspecStore):
    """HDFS over HTTP; the deletion of a file ends its lease, HTTP has no other way."""

    @override
    def write(self, path: str, head: bytes, source: BinaryIO) -> ObjectFacts:
        # One request for the whole file: the deadlines are those of its sockets.
        facts: ObjectFacts = self.fs.upload(
            path, head, source, self.file_options, self.calls.seconds_left
        )
        return facts

    @override
    def close(self) -> None:
        super().close()
        self.fs.session.close()


class LibHdfsStore(FsspecStore):
    """HDFS through pyarrow and Hadoop's own C library."""

    @override
    def move(self, temporary: str, target: str) -> None:
        self.remove(target)  # its rename refuses an existing name
        self.calls.method("mv", temporary, target)

    @override
    def remove_folder(self, folder: str) -> bool:
        # Its rmdir also removes the directory's content: right only for temporary files.
        return folder.endswith(COPYING_SUFFIX) and super().remove_folder(folder)


def _driver(wanted: str, scheme: str) -> str:
    if wanted != "auto":
        return wanted
    if scheme in _WEB_SCHEMES:
        return "webhdfs"
    with contextlib.suppress(ImportError):
        import hdfs_native  # noqa: F401 - is it there?

        return "hdfs-native"
    with contextlib.suppress(ImportError):
        import pyarrow  # noqa: F401 - is it there?

        return "libhdfs"
    return "hdfs-native"


def _native(
    url: SplitResult, values: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Any, type[NativeHdfsStore]]:
    from rsm_plugins.hdfs.native_fs import NativeHdfsFileSystem

    if values["user"]:
        os.environ["HADOOP_USER_NAME"] = values["user"]  # where the library looks for it
    config = {
        "dfs.client.socket-timeout": str(values["request.timeout.ms"]),
        **{
            name: value if isinstance(value, str) else json.dumps(value)  # true, not True
            for name, value in options.items()
        },
    }
    fs = NativeHdfsFileSystem(
        f"hdfs://{_without_user(url)}",
        config,
        values["config.dir"],
        kerberos_principal=values["kerberos.principal"],
        kerberos_keytab=values["kerberos.keytab"],
    )
    return fs, NativeHdfsStore


def _web(
    url: SplitResult, values: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Any, type[WebHdfsStore]]:
    from rsm_plugins.hdfs.web_fs import WebHdfsFileSystem

    user = values["user"] or url.username
    fs = WebHdfsFileSystem(
        url.hostname or "",
        url.port or (9871 if url.scheme == "swebhdfs" else 9870),
        timeout_s=values["request.timeout.ms"] / 1_000,
        use_https=url.scheme == "swebhdfs",
        skip_instance_cache=True,
        **{"user": user, "password": url.password, **options},
    )
    return fs, WebHdfsStore


def _lib(
    url: SplitResult, values: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Any, type[LibHdfsStore]]:
    from fsspec.implementations.arrow import HadoopFileSystem

    fs = HadoopFileSystem(
        f"hdfs://{url.hostname}",
        url.port or 0,
        user=values["user"] or url.username,
        replication=values["replication"] or 3,
        skip_instance_cache=True,
        **options,
    )
    return fs, LibHdfsStore


_OPEN = {"hdfs-native": _native, "webhdfs": _web, "libhdfs": _lib}


def _file_options(values: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = {"replication": values["replication"], "block_size": values["block.size.bytes"]}
    return {name: value for name, value in wanted.items() if value}


def _without_user(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2]
