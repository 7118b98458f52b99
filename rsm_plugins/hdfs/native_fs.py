"""hdfs-native as an fsspec file system, with a client that gets the directory of its settings.

Imported only where it is used: hdfs-native is an extra.
"""

from collections.abc import Mapping

from fsspec import AbstractFileSystem
from hdfs_native import Client
from hdfs_native.fsspec import HdfsFileSystem


class NativeHdfsFileSystem(HdfsFileSystem):
    """`HdfsFileSystem` with `config_dir` and Kerberos, which it lacks by itself."""

    cachable = False

    def __init__(
        self,
        url: str,
        config: Mapping[str, str],
        config_dir: str | None,
        *,
        kerberos_principal: str | None,
        kerberos_keytab: str | None,
    ) -> None:
        AbstractFileSystem.__init__(self)
        self.host, self.port = url, None
        self.client = Client(
            url,
            dict(config),
            config_dir,
            kerberos_principal=kerberos_principal,
            kerberos_keytab=kerberos_keytab,
        )
