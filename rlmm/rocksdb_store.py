"""The store on RocksDB: it survives a restart, and its memory is bounded.

Nothing here is fsynced, on purpose. The store is a cache of the topic. A batch is atomic and
RocksDB's log keeps order, so after a crash the store has an earlier state with the matching
position. A database that cannot be opened, or that belongs to another cluster or layout, is removed
and read again from the topic. RocksDB detects a damaged block only when it reads the block, and its
iterator then ends as if at the end. So each scan is checked, and a partition's entries are counted.
After such damage the file `<directory>.damaged` makes the next start remove the database.

Keys are bytes that sort in the order of scans. `m` is the metadata partition (u32), `p` the user
partition (topic id, u32):

| key | value |
|---|---|
| `V` | layout version, cluster id, partitions of the metadata topic |
| `P m` | position |
| `F m p` | facts of a user partition |
| `I m p id` | start offset of a live segment |
| `S m p start-offset id` | entry of a live segment |
"""

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from rlmm.api import REMOVER_FENCE, PartitionHistory
from rlmm.lifecycle import PartitionFacts, SegmentEntry, history_of
from rlmm.rocksdb_codec import decode_end, decode_facts, from_entry, from_facts, to_entry, to_facts
from rlmm.store import START, Changes, DamagedStoreError, MetadataStore, PartitionKey, Position
from runtime.disk import Disk
from runtime.incidents import Incident
from runtime.override import override

log = logging.getLogger(__name__)

_LAYOUT_VERSION = 3
"""A store with another number, or none, is removed and read again.

Layout 1 had no carried log starts, no unclean elections and no fences of segments. In layout 2 the
records of a tier of this version were validated by the rules of the one before (`rlmm.lifecycle`).
"""
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_POSITION = struct.Struct(">qi")
_VERSION_KEY = b"V"
DAMAGE_SUFFIX = ".damaged"
_OF_THE_MOMENT = (
    "lock file",  # another process has it open
    "lock hold by current process",
    "Too many open files",
    "Cannot allocate memory",
    "No space left on device",
    "Disk quota exceeded",
)
"""Substrings of RocksDB's messages, which have no error numbers. The files are intact then."""


class _Version(msgspec.Struct, array_like=True):
    layout: int
    cluster_id: str
    partition_count: int


_encode = msgspec.msgpack.Encoder().encode
_decode_version = msgspec.msgpack.Decoder(_Version).decode


class RocksdbStore(MetadataStore):
    """A MetadataStore in a directory; one process at a time."""

    failure: str | None

    def __init__(
        self, directory: Path, *, cluster_id: str, partition_count: int, disk: Disk | None = None
    ) -> None:
        """Open the database, or begin again if it is damaged or of another cluster or topic.

        Raises RocksDB's error, and leaves the files, if another process has it open, or if
        descriptors, memory or space run out.

        Args:
            directory: Used by this store only; made if it is missing.
            cluster_id: The Kafka cluster's.
            partition_count: Partitions of the metadata topic; with another count, user partitions
                are in other ones.
            disk: Makes and removes the directory.
        """
        self._directory = directory
        self._disk = disk = disk or Disk()
        self._mark = directory.with_name(directory.name + DAMAGE_SUFFIX)
        self.failure: str | None = None
        version = _Version(_LAYOUT_VERSION, cluster_id, partition_count)
        disk.make_dirs(directory.parent)
        if disk.exists(self._mark):
            log.warning("metadata cache was found damaged, begins again: dir=%s", directory)
            disk.remove_tree(directory)
            disk.unlink(self._mark)
        self._db = _opened(directory, version, disk)
        self._db[_VERSION_KEY] = _encode(version)

    @override
    def position(self, metadata_partition: int) -> Position:
        with self._checked():
            value = self._db.get(b"P" + _U32.pack(metadata_partition))
            return START if value is None else Position(*_POSITION.unpack(value))

    @override
    def facts(self, metadata_partition: int, partition: PartitionKey) -> PartitionFacts | None:
        with self._checked():
            value = self._db.get(b"F" + _prefix(metadata_partition, partition))
            return None if value is None else to_facts(partition, value)

    @override
    def all_facts(self, metadata_partition: int) -> list[PartitionFacts]:
        with self._checked():
            return [
                to_facts(_partition_in(key), value)
                for key, value in self._scan(b"F" + _U32.pack(metadata_partition))
            ]

    @override
    def entry(
        self, metadata_partition: int, partition: PartitionKey, id: bytes
    ) -> SegmentEntry | None:
        prefix = _prefix(metadata_partition, partition)
        with self._checked():
            start = self._db.get(b"I" + prefix + id)
            if start is None:
                return None
            value = self._db.get(b"S" + prefix + start + id)
            if value is None:
                raise DamagedStoreError(f"segment {id.hex()} has a start and no entry")
            return to_entry(partition, start + id, value)

    @override
    def entries(self, metadata_partition: int, partition: PartitionKey) -> Iterator[SegmentEntry]:
        with self._checked():
            for start_and_id, value in self._live(metadata_partition, partition):
                yield to_entry(partition, start_and_id, value)

    def newest_entry(self, metadata_partition: int, partition: PartitionKey) -> SegmentEntry | None:
        """The live segment with the highest end offset; of others only the end is decoded."""
        newest = None
        with self._checked():
            for start_and_id, value in self._live(metadata_partition, partition):
                order = decode_end(value).end_offset, start_and_id[8:]
                if newest is None or order > newest[0]:
                    newest = order, start_and_id, value
            return None if newest is None else to_entry(partition, newest[1], newest[2])

    @override
    def write(self, metadata_partition: int, changes: Changes, position: Position) -> None:
        batch = WriteBatch(raw_mode=True)
        for partition, facts in changes.facts.items():
            batch.put(b"F" + _prefix(metadata_partition, partition), from_facts(facts))
        for (partition, segment_id), (before, after) in changes.segments.items():
            prefix = _prefix(metadata_partition, partition)
            if before is not None:
                start = _U64.pack(before.metadata.start_offset)
                batch.delete(b"S" + prefix + start + segment_id)
                batch.delete(b"I" + prefix + segment_id)
            if after is not None:
                start = _U64.pack(after.metadata.start_offset)
                batch.put(b"I" + prefix + segment_id, start)
                batch.put(b"S" + prefix + start + segment_id, from_entry(after))
        batch.put(b"P" + _U32.pack(metadata_partition), _POSITION.pack(*position))
        with self._checked():
            self._db.write(batch)

    @override
    def drop(self, metadata_partition: int) -> None:
        begin, end = _U32.pack(metadata_partition), _U32.pack(metadata_partition + 1)
        batch = WriteBatch(raw_mode=True)
        for kind in (b"P", b"F", b"I", b"S"):
            batch.delete_range(kind + begin, kind + end)
        with self._checked():
            self._db.write(batch)

    @override
    def close(self) -> None:
        try:
            with self._checked():
                self._db.close()
        except DamagedStoreError:
            del self._db  # a close that fails leaves it open

    def _live(
        self, metadata_partition: int, partition: PartitionKey
    ) -> Iterator[tuple[bytes, bytes]]:
        """Start and id, and value, of each live segment, ascending by start."""
        prefix, count = b"S" + _prefix(metadata_partition, partition), 0
        for key, value in self._scan(prefix):
            count += 1
            yield key[len(prefix) :], value
        facts = self.facts(metadata_partition, partition)
        expected = 0 if facts is None else facts.live_count
        if count != expected:
            raise DamagedStoreError(f"{count} live segments are stored, not {expected}")

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(_next_prefix(prefix))
        begin = prefix
        for key, value in self._db.items(from_key=prefix, read_opt=options):
            assert isinstance(key, bytes), "raw mode"
            begin = key + b"\0"
            yield key, value
        # `items` ends silently at a damaged block: check that this is the end.
        rest = self._db.iter(options)
        rest.seek(begin)
        rest.status()
        if rest.valid():
            raise DamagedStoreError(f"a scan ended before its end, at key {begin.hex()}")

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Note damage in a file, so that the next start begins again.

        Raises:
            DamagedStoreError: For any error of RocksDB in the block.
        """
        try:
            yield
        except Exception as error:
            if self.failure is None and not _is_of_the_moment(error):
                self.failure = said = str(error)
                log.error(Incident.REMOTE_CACHE_DAMAGED.line(path=self._directory, error=said))  # noqa: TRY400
                try:
                    self._disk.atomic_write(self._mark, self.failure.encode())
                except OSError as left:
                    log.warning("the damage cannot be noted: %s", left)
            if isinstance(error, DamagedStoreError):
                raise
            raise DamagedStoreError(f"metadata cache {self._directory}: {error}") from error


def _opened(directory: Path, version: _Version, disk: Disk) -> Rdict:
    """The database, or an empty one if it is damaged or of another version."""
    db: Rdict | None = None
    try:
        db = Rdict(str(directory), _options())
        found = _version_of(db)
        if found is None or found == version:
            return db
        reason = f"is of {found}, not {version}"
    except Exception as e:
        if _is_of_the_moment(e):
            raise
        reason = f"is damaged: {e}"
    log.warning("metadata cache begins again: dir=%s it %s", directory, reason)
    if db is not None:
        with suppress(Exception):  # a database that is removed need not be closed cleanly
            db.close()
        del db
    disk.remove_tree(directory)
    if disk.exists(directory):  # it is a file
        disk.unlink(directory)
    return Rdict(str(directory), _options())


def _version_of(db: Rdict) -> _Version | None:
    """The version it was written as; None if it is empty."""
    found = db.get(_VERSION_KEY)
    if found is not None:
        return _decode_version(found)
    is_empty = next(iter(db.keys()), None) is None
    return None if is_empty else _Version(0, "", 0)


def _is_of_the_moment(error: Exception) -> bool:
    """True if the files are intact: they are in use, or the process or disk has run out."""
    said = str(error)
    return any(each in said for each in _OF_THE_MOMENT)


def _options() -> Options:
    """Options for bounded memory: a few megabytes at rest, tens with millions of segments.

    Index and filter blocks are in the block cache, so they must be partitioned. Filters in one part
    do not fit a shard of a small cache, and lookups become forty times slower.
    """
    table = BlockBasedOptions()
    table.set_block_cache(Cache(8 << 20))
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(4096)
    table.set_pin_top_level_index_and_filter(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(2 << 20)
    options.set_max_write_buffer_number(2)
    options.set_max_total_wal_size(8 << 20)
    options.set_max_open_files(64)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _prefix(metadata_partition: int, partition: PartitionKey) -> bytes:
    return _U32.pack(metadata_partition) + partition[0] + _U32.pack(partition[1])


def _partition_in(key: bytes) -> PartitionKey:
    return key[5:21], _U32.unpack_from(key, 21)[0]


def _next_prefix(prefix: bytes) -> bytes:
    """The smallest key above all that begin with `prefix`.

    It exists, since the first byte (the kind) is below 255.
    """
    bare = prefix.rstrip(b"\xff")
    return bare[:-1] + bytes((bare[-1] + 1,))


def highest_incarnation(directory: Path) -> int | None:
    """The highest tier incarnation in this cache, without the remover's. For tools.

    Writes nothing. No process may have the cache open for writing.

    Returns:
        None if there is no cache, or none that can be read: that proves nothing.
    """
    if not directory.is_dir():
        return None
    try:
        cache = Rdict(str(directory), _options(), access_type=AccessType.read_only())
        try:
            found = [
                facts.incarnation
                for _, value in _facts_in(cache)
                if (facts := decode_facts(value)).incarnation < REMOVER_FENCE.incarnation
            ]
        finally:
            cache.close()
    except Exception as error:  # noqa: BLE001 - RocksDB has no error of its own for us
        log.warning("metadata cache cannot be read: dir=%s %s", directory, error)
        return None
    return max(found, default=None)


def read_history(directory: Path, partition: PartitionKey) -> PartitionHistory | None:
    """The history of a user partition in this cache. For tools.

    Writes nothing. No process may have the cache open for writing.

    Returns:
        None if there is no cache, none that can be read, or one without the partition.
    """
    if not directory.is_dir():
        return None
    try:
        cache = Rdict(str(directory), _options(), access_type=AccessType.read_only())
        try:
            for key, value in _facts_in(cache):
                if _partition_in(key) == partition:
                    prefix = b"S" + key[1:]
                    options = ReadOptions()
                    options.set_iterate_upper_bound(_next_prefix(prefix))
                    entries = [
                        to_entry(partition, bytes(name)[len(prefix) :], entry)
                        for name, entry in cache.items(from_key=prefix, read_opt=options)
                        if isinstance(name, bytes)
                    ]
                    facts = to_facts(partition, value)
                    return history_of(facts, entries) if len(entries) == facts.live_count else None
        finally:
            cache.close()
    except Exception as error:  # noqa: BLE001 - RocksDB has no error of its own for us
        log.warning("metadata cache cannot be read: dir=%s %s", directory, error)
    return None


def _facts_in(cache: Rdict) -> Iterator[tuple[bytes, bytes]]:
    options = ReadOptions()
    options.set_iterate_upper_bound(_next_prefix(b"F"))
    yield from cache.items(from_key=b"F", read_opt=options)
