"""The plugin whose store is a bucket of S3: of AWS, or of any compatible store.

`store.py` handles buckets, this module settings and the keys of a segment's objects:
`<prefix>/<entropy>/<layout's key>`, where the folder `entropy` is there only if it is configured.
The number of its digits is kept with each segment (custom metadata `e4`), so that the setting may
change.

boto3 is an extra (`s3`), imported when the plugin is configured.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from crc32c import crc32c

from rsm_plugins.api import RemoteObjectDamagedError, RemoteStorageError
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectNames, object_names
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.s3.settings import ENTROPY_CHARS_MAX, SETTINGS, s3_options
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from rsm_plugins.settings import Setting
from runtime.override import override
from runtime.version import install_command

_CUSTOM = re.compile(rb"e([1-%d])" % ENTROPY_CHARS_MAX)


class S3RemoteStorageManager(LayoutStorageManager):
    """Keeps remote segments in a bucket."""

    SETTINGS: ClassVar[Sequence[Setting]] = SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self._entropy_chars = 0
        self._place = ""

    def store_place(self) -> str:
        """The location of the segments: the same text for the same store, on every broker."""
        return self._place

    @override
    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        options = s3_options(values)
        try:
            from rsm_plugins.s3.client import probe
            from rsm_plugins.s3.store import S3Store
        except ModuleNotFoundError as e:
            raise RemoteStorageError(f"S3 needs boto3 ({e}): {install_command('s3')}") from e
        self._entropy_chars = options.entropy_chars
        endpoint = (options.endpoint_url or "").rstrip("/")
        self._place = f"{endpoint} {options.bucket}/{options.prefix}"
        probe(options)
        return S3Store(options)

    def places(self, metadata: RemoteLogSegmentMetadata) -> Sequence[ObjectNames]:
        """Names under which the segment's objects may be.

        A segment without custom metadata is either one without entropy, or an unfinished copy. Its
        objects are where the setting says, and a deletion must find them.
        """
        plain, configured = _names(metadata, 0), _names(metadata, self._entropy_chars)
        if metadata.custom_metadata is not None:
            match = _CUSTOM.fullmatch(metadata.custom_metadata)
            if match is None:
                raise RemoteStorageError(
                    f"custom metadata is not ours: {metadata.custom_metadata[:100]!r}"
                )
            return (_names(metadata, int(match[1])),)
        if plain == configured:
            return (plain,)
        if metadata.state is SegmentState.COPY_SEGMENT_STARTED:
            return (configured, plain)
        return (plain, configured)

    @override
    def custom_metadata(self) -> bytes | None:
        return b"e%d" % self._entropy_chars if self._entropy_chars else None

    @override
    def custom_metadata_at(self, folder: str, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        if not folder:
            return None
        if not _entropy(metadata).startswith(folder):
            raise RemoteObjectDamagedError(f"{folder}: no copy of this segment lies there")
        return b"e%d" % len(folder)


def _entropy(metadata: RemoteLogSegmentMetadata) -> str:
    return f"{crc32c(metadata.id.id):08x}"


def _names(metadata: RemoteLogSegmentMetadata, entropy_chars: int) -> ObjectNames:
    names = object_names(metadata)
    if not entropy_chars:
        return names
    return ObjectNames(_entropy(metadata)[:entropy_chars] + "/" + names.base)
