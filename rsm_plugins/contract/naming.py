"""Promises about names: different segments stay apart, and no name leads out of the store."""

import contextlib
from dataclasses import replace
from functools import partial

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
)
from rsm_plugins.contract import expect, samples
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import LOG_BYTES, segment_data
from runtime.raised import described

_NO_TOPICS = ("../../etc", "a/b", "..", "", "/abs", "a\0b")
_LONGEST_TOPIC = "t" * 249
_LARGE_OFFSET = 2**63 - 1_000


class NamePromises(Promises):
    """Promises about names."""

    custom_metadata_bytes_max = 128
    """The default of remote.log.metadata.custom.metadata.max.bytes."""

    def test_the_same_name_with_another_topic_id_is_another_topic(
        self, manager: RemoteStorageManager
    ) -> None:
        """A topic that was deleted and made again under its name is another topic."""
        other = b"z" * len(LOG_BYTES)
        old = self.copied(manager)
        reborn = self.segment(topic_id=bytes(byte ^ 0xFF for byte in self.topic_id))
        new = self.copied(manager, reborn, segment_data(other))
        expect.reads(lambda: manager.fetch_log_segment(old, 0), LOG_BYTES, "the old topic")
        expect.reads(lambda: manager.fetch_log_segment(new, 0), other, "the new topic")
        manager.delete_log_segment_data(old)
        expect.reads(lambda: manager.fetch_log_segment(new, 0), other, "the new one, old deleted")

    def test_partitions_are_kept_apart(self, manager: RemoteStorageManager) -> None:
        """Segments of partitions 1 and 11 are kept apart."""
        one = self.copied(manager, self.segment(partition=1))
        eleven = self.segment(partition=11)
        self.is_gone(manager, eleven, "a segment of another partition")
        manager.delete_log_segment_data(eleven)
        expect.reads(lambda: manager.fetch_log_segment(one, 0), LOG_BYTES, "partition 1")

    def test_segments_of_the_same_offsets_are_kept_apart(
        self, manager: RemoteStorageManager
    ) -> None:
        """Two segments that begin at one offset, as after a lost leader, are kept apart."""
        bodies = {number: bytes([number]) * len(LOG_BYTES) for number in (1, 2, 3)}
        copies = {
            number: self.copied(manager, self.segment(number), segment_data(body))
            for number, body in bodies.items()
        }
        for number, body in bodies.items():
            call = partial(manager.fetch_log_segment, copies[number], 0)
            expect.reads(call, body, f"segment {number} of 3 with the same offsets")

    def test_custom_metadata_fits_the_default_limit(self, manager: RemoteStorageManager) -> None:
        """The longest topic name and the largest offset work, with little custom metadata."""
        metadata = self.segment(topic=_LONGEST_TOPIC, start_offset=_LARGE_OFFSET, partition=99_999)
        copied = self.copied(manager, metadata)
        custom, limit = copied.custom_metadata, self.custom_metadata_bytes_max
        expect.that(
            custom is None or isinstance(custom, bytes),
            f"the copy returned {type(custom).__name__}; promised is bytes or None",
        )
        size = len(custom or b"")
        expect.that(size <= limit, f"{size} bytes of custom metadata; the limit is {limit}")
        expect.reads(lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "the long name's log")

    def test_names_that_lead_out_of_the_store_are_refused(
        self, manager: RemoteStorageManager
    ) -> None:
        """A topic name that no topic can have is refused: it must not become a path."""
        for topic in _NO_TOPICS:
            evil = samples.segment(topic=topic, topic_id=self.topic_id)
            try:
                expect.fails(
                    RemoteStorageError,
                    partial(manager.copy_log_segment_data, evil, segment_data()),
                    f"copying for a topic named {topic!r}",
                )
                expect.fails(
                    RemoteStorageError,
                    partial(manager.fetch_log_segment, evil, 0),
                    f"reading for a topic named {topic!r}",
                )
            finally:
                with contextlib.suppress(RemoteStorageError):
                    manager.delete_log_segment_data(evil)

    def test_custom_metadata_never_leads_out_of_the_store(
        self, manager: RemoteStorageManager
    ) -> None:
        """Custom metadata that the plugin did not write leads nowhere: refused, or ignored."""
        copied = self.copied(manager)
        for custom in (b"../../etc/passwd", b"/etc/passwd", b"\xff\xfe not text", b"{}"):
            evil = replace(copied, custom_metadata=custom)
            what = f"reading with custom metadata {custom!r}"
            try:
                got = samples.read(manager.fetch_log_segment(evil, 0))
            except RemoteStorageError:
                continue
            except Exception as e:  # any other error is the finding
                raise AssertionError(f"{what}: raised {described(e)}") from e
            expect.same_bytes(got, LOG_BYTES, what)
        with contextlib.suppress(RemoteResourceNotFoundError):
            expect.reads(lambda: manager.fetch_log_segment(copied, 0), LOG_BYTES, "with its own")
