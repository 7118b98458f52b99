"""The complete copies of segments in a bucket, by its listing and their manifests.

A copy is complete when its manifest and both objects are there with the sizes that the manifest
says. Manifests are read side by side, once each: a manifest never changes. What is damaged, or says
other things than its name and the listing, is no copy but a flaw, which names the object; it is
looked at again with each listing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kafka_protocol.wire.primitives import uuid_to_text
from pipeline.cluster.cluster import UnknownTopicError, no_topic
from pipeline.errors import OptionError
from pipeline.store import from_store
from pipeline.truth.indexes import SegmentIndexes
from rsm_plugins.api import RemoteObjectDamagedError, RemoteResourceNotFoundError
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    Manifest,
    parse_key,
)
from rsm_plugins.segment import RemoteLogSegmentMetadata

_FOLDER_CHARS_MAX = 232
"""A longer topic's name is cut in the folder's."""

Home = tuple[bytes, int]
"""Topic id and partition."""


class Flaw(NamedTuple):
    """An object of a bucket that cannot be used.

    Attributes:
        key: its name.
        start_offset: of the segment, as its name says.
        reason: in words.
    """

    key: str
    start_offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


@dataclass(slots=True)
class Copies:
    """The copies of one partition: complete copies by segment id, and flaws."""

    complete: dict[bytes, RemoteLogSegmentMetadata] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)


@dataclass(slots=True)
class _Folder:
    """A topic as the listing shows it: keys of manifests by partition, perhaps with a cut name."""

    name: str
    manifests: dict[int, list[str]] = field(default_factory=dict)


class BucketCopies:
    """The listing of a bucket, and the manifests that were read so far."""

    def __init__(
        self, store: LayoutStorageManager, reader: SegmentIndexes, ids: Mapping[str, bytes]
    ) -> None:
        """Nothing is listed yet.

        Args:
            store: the plugin.
            reader: gives the threads.
            ids: topic id by name, where the bucket has several of one name.
        """
        self._store = store
        self._reader = reader
        self._ids = ids
        self._sizes: dict[str, int] = {}
        self._folders: dict[bytes, _Folder] = {}
        self._topics: dict[str, list[bytes]] | None = None
        self._manifests: dict[str, Manifest | Flaw | None] = {}

    def refresh(self) -> None:
        """List the bucket again.

        Raises:
            StoreUnreachableError: the store failed.
        """
        self._sizes, self._folders = from_store(self._listed)
        self._topics = None
        sizes = self._sizes
        # What was wrong with a copy may be right by now.
        self._manifests = {
            key: one
            for key, one in self._manifests.items()
            if key in sizes and isinstance(one, Manifest)
        }

    def topics(self) -> dict[str, list[bytes]]:
        """Ids by name, of all topics of which there is a manifest."""
        if self._topics is None:
            self._topics = {}
            for topic_id, folder in sorted(self._folders.items()):
                self._topics.setdefault(self._name(folder), []).append(topic_id)
        return self._topics

    def topic_id(self, name: str) -> bytes:
        """The id of a topic.

        Raises:
            UnknownTopicError: there is nothing of it; names the nearest.
            OptionError: there are several, or not the one that was given.
        """
        found = self.topics()
        ids = found.get(name, [])
        given = self._ids.get(name)
        if given is not None:
            if given not in ids:
                raise OptionError(
                    f"topicId={uuid_to_text(given)}: the bucket has no topic {name} of this id;"
                    f" it has {_texts(ids) or 'none of the name'}"
                )
            return given
        if not found:
            raise UnknownTopicError(
                f"there is no topic {name[:249]!r}: the bucket holds no complete copy of any"
                " segment; see whether bucket and prefix are right"
            )
        if not ids:
            raise no_topic(name, found)
        if len(ids) > 1:
            raise OptionError(
                f"the bucket has {len(ids)} topics named {name}: choose one of the ids"
                f' {_texts(ids)} by tidemark.topicId={{"{name}":"id"}} in Spark, topic_id in a'
                " scan, --topic-id on the command line"
            )
        return ids[0]

    def partitions(self, topic_id: bytes) -> list[int]:
        """The partitions of a topic of which there is a manifest, ascending."""
        return sorted(self._folders[topic_id].manifests)

    def copies(self, homes: Iterable[Home]) -> dict[Home, Copies]:
        """The copies of some partitions; reads the manifests that were not read yet.

        Raises:
            StoreUnreachableError: the store failed.
        """
        keys = {home: self._keys(home) for home in homes}
        self._read([key for of in keys.values() for key in of])
        found = {}
        for home, of in keys.items():
            found[home] = copies = Copies()
            for key in of:
                one = self._manifests[key]
                if isinstance(one, Manifest):
                    copies.complete[one.metadata.id.id] = one.metadata
                elif one is not None:
                    copies.flaws.append(one)
        return found

    # ------------------------------------------------------------------ inside

    def _listed(self) -> tuple[dict[str, int], dict[bytes, _Folder]]:
        """Sizes by key, and topics by id."""
        sizes: dict[str, int] = {}
        folders: dict[bytes, _Folder] = {}
        for one in self._store.list_objects():
            parsed = parse_key(one.key)
            if parsed is None:
                continue
            sizes[one.key] = one.size_bytes
            if parsed.suffix == MANIFEST_SUFFIX:
                folder = folders.setdefault(parsed.topic_id, _Folder(parsed.topic))
                folder.manifests.setdefault(parsed.partition, []).append(one.key)
        return sizes, folders

    def _keys(self, home: Home) -> Sequence[str]:
        folder = self._folders.get(home[0])
        return folder.manifests.get(home[1], []) if folder is not None else []

    def _name(self, folder: _Folder) -> str:
        if len(folder.name) < _FOLDER_CHARS_MAX:
            return folder.name
        for keys in folder.manifests.values():
            for key in keys:
                self._read([key])
                one = self._manifests[key]
                if isinstance(one, Manifest):
                    return one.metadata.topic_id_partition.topic
        return folder.name

    def _read(self, keys: Iterable[str]) -> None:
        new = [key for key in keys if key not in self._manifests]
        for key, one in zip(new, self._reader.side_by_side(self._manifest, new), strict=True):
            self._manifests[key] = one

    def _manifest(self, key: str) -> Manifest | Flaw | None:
        """A manifest, what is wrong with the copy, or None where it was deleted meanwhile."""
        parsed = parse_key(key)
        assert parsed is not None, "only such keys are listed"
        try:
            manifest = from_store(lambda: self._store.read_manifest(key))
        except RemoteResourceNotFoundError:
            return None
        except RemoteObjectDamagedError as error:
            return Flaw(key, parsed.start_offset, str(error).removeprefix(f"{key}: "))
        reason = contradiction(manifest)
        if reason is None and _differs(self._sizes, parsed.base, manifest) is not None:
            # A copy that ended while the bucket was listed may be there in part: look again.
            again = from_store(lambda: list(self._store.list_objects(parsed.base)))
            sizes = {one.key: one.size_bytes for one in again}
            if key not in sizes:
                return None
            reason = _differs(sizes, parsed.base, manifest)
        return manifest if reason is None else Flaw(key, parsed.start_offset, reason)


def _differs(sizes: Mapping[str, int], base: str, manifest: Manifest) -> str | None:
    """The differences between a listing and the manifest."""
    for suffix, facts in ((LOG_SUFFIX, manifest.log), (INDEXES_SUFFIX, manifest.indexes)):
        size = sizes.get(base + suffix)
        if size is None:
            return f"its {suffix} object is missing"
        if size != facts.size_bytes:
            return f"its {suffix} object has {size} bytes, and it says {facts.size_bytes}"
    return None


def contradiction(manifest: Manifest) -> str | None:
    """A contradiction in a manifest; None: nothing.

    Its first leader epoch may begin behind its first offset: at what was the log start then.
    """
    meta, epochs = manifest.metadata, manifest.metadata.leader_epochs
    if manifest.log.size_bytes != meta.segment_size_bytes:
        return f"it says {meta.segment_size_bytes} and {manifest.log.size_bytes} bytes of its log"
    if not 0 <= meta.start_offset <= meta.end_offset:
        return f"it says offsets {meta.start_offset} to {meta.end_offset}"
    ordered = all(
        one.epoch < two.epoch and one.start_offset <= two.start_offset
        for one, two in pairwise(epochs)
    )
    if not epochs or not ordered:
        return f"its leader epochs are not a chain: {list(map(tuple, epochs))!r:.200}"
    if epochs[-1].start_offset > meta.end_offset:
        return f"its last leader epoch begins at offset {epochs[-1].start_offset}, beyond its end"
    return None


def _texts(ids: Iterable[bytes]) -> str:
    return " and ".join(uuid_to_text(one) for one in ids)
