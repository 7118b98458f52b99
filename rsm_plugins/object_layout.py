"""The old name of `rsm_plugins.layout.objects`: works until 1.0, with a warning."""

import warnings

from rsm_plugins.layout.objects import (
    INDEXES_HEADER_BYTES_MAX,
    INDEXES_SUFFIX,
    INDEXES_VERSION,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    MANIFEST_VERSION,
    DamagedObjectError,
    IndexSection,
    Manifest,
    ObjectFacts,
    ObjectNames,
    ParsedKey,
    UnsafeNameError,
    check_key,
    checked_section,
    dump_manifest,
    folder_of_prefix,
    object_names,
    pack_indexes,
    parse_key,
    parse_manifest,
    partition_folder,
    read_indexes_header,
)

__all__ = [
    "INDEXES_HEADER_BYTES_MAX",
    "INDEXES_SUFFIX",
    "INDEXES_VERSION",
    "LOG_SUFFIX",
    "MANIFEST_SUFFIX",
    "MANIFEST_VERSION",
    "DamagedObjectError",
    "IndexSection",
    "Manifest",
    "ObjectFacts",
    "ObjectNames",
    "ParsedKey",
    "UnsafeNameError",
    "check_key",
    "checked_section",
    "dump_manifest",
    "folder_of_prefix",
    "object_names",
    "pack_indexes",
    "parse_key",
    "parse_manifest",
    "partition_folder",
    "read_indexes_header",
]

warnings.warn(
    "rsm_plugins.object_layout is rsm_plugins.layout.objects now; the old name goes with 1.0",
    DeprecationWarning,
    stacklevel=2,
)
