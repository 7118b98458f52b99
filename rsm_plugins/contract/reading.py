"""Promises of `fetch_log_segment`: exact ranges, and streams that behave like files."""

import random
from functools import partial
from typing import BinaryIO

from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import LOG_BYTES

_LAST = len(LOG_BYTES) - 1
_BORDERS = (0, 1, 2, 255, 256, 4_095, 4_096, 8_192, _LAST - 1, _LAST)
_LARGE_BORDERS = (1 << 16, 1 << 20, 4 << 20, 5 << 20, 8 << 20, 16 << 20, 32 << 20)
"""Sizes of the buffers, parts and blocks of usual stores and plugins."""
_AROUND_BYTES = 3_000
_EARLY_CLOSES = 40


class RangePromises(Promises):
    """Promises about the bytes of a read."""

    def test_ranges_are_inclusive_at_both_ends(self, manager: RemoteStorageManager) -> None:
        """Ranges are inclusive at both ends, and exact at every border."""
        copied = self.copied(manager)
        for first in _BORDERS:
            for last in (one for one in _BORDERS if one >= first):
                expect.reads(
                    partial(manager.fetch_log_segment, copied, first, last),
                    LOG_BYTES[first : last + 1],
                    f"bytes [{first}, {last}]",
                )

    def test_ranges_of_a_large_segment_are_exact(self, manager: RemoteStorageManager) -> None:
        """Ranges of a segment of many MiB are exact around part borders, its end and in between."""
        copied, log = self.large(manager)
        end = len(log)
        rng = random.Random(11)
        ranges = [(end - 1, end - 1), (0, 0), (end - _AROUND_BYTES, end - 1), (1, end - 2)]
        for border in (one for one in _LARGE_BORDERS if one + _AROUND_BYTES < end):
            ranges += [
                (border - 1, border - 1),
                (border, border),
                (border - 1, border),
                (border - _AROUND_BYTES, border + _AROUND_BYTES),
            ]
        for _ in range(20):
            first = rng.randrange(end)
            ranges.append((first, min(end - 1, first + rng.randrange(200_000))))
        for first, last in ranges:
            expect.reads(
                partial(manager.fetch_log_segment, copied, first, last),
                log[first : last + 1],
                f"bytes [{first}, {last}] of {end}",
            )

    def test_a_range_past_the_end_is_clipped(self, manager: RemoteStorageManager) -> None:
        """A range that goes past the end is clipped there."""
        copied = self.copied(manager)
        for first, last in ((0, _LAST + 1), (100, 10**9), (_LAST, 2**40)):
            expect.reads(
                partial(manager.fetch_log_segment, copied, first, last),
                LOG_BYTES[first:],
                f"bytes [{first}, {last}] of {len(LOG_BYTES)}",
            )

    def test_an_open_range_goes_to_the_end(self, manager: RemoteStorageManager) -> None:
        """A range without an end goes to the segment's end."""
        copied = self.copied(manager)
        for first in _BORDERS:
            expect.reads(
                partial(manager.fetch_log_segment, copied, first),
                LOG_BYTES[first:],
                f"bytes from {first} on",
            )

    def test_impossible_ranges_are_the_callers_mistake(self, manager: RemoteStorageManager) -> None:
        """A range that begins before 0, behind the end or behind its own end is a ValueError."""
        copied = self.copied(manager)
        for first, last in ((-1, None), (_LAST + 1, None), (10**9, None), (5, 4), (0, -1)):
            expect.fails(
                ValueError,
                partial(manager.fetch_log_segment, copied, first, last),
                f"range [{first}, {last}] of {len(LOG_BYTES)} bytes",
            )


class StreamPromises(Promises):
    """Promises about streams."""

    def test_a_stream_is_read_in_pieces_of_any_size(self, manager: RemoteStorageManager) -> None:
        """A big range can be read in small pieces, by read and by readinto."""
        copied, log = self.large(manager)
        first, last = 777_777, min(len(log) - 1, 777_777 + (3 << 20))
        for piece in (1_021, 65_536, 1 << 20):
            got = bytearray()
            with manager.fetch_log_segment(copied, first, last) as stream:
                while data := stream.read(piece):
                    expect.that(len(data) <= piece, f"read({piece}) gave {len(data)} bytes")
                    got += data
            expect.same_bytes(bytes(got), log[first : last + 1], f"pieces of {piece} bytes")
        with manager.fetch_log_segment(copied, first, last) as stream:
            readinto = getattr(stream, "readinto", None)
            if readinto is None:
                return
            body = memoryview(bytearray(last + 1 - first + 10))
            filled = 0
            while count := readinto(body[filled : filled + 100_003]):
                filled += count
        expect.same_bytes(bytes(body[:filled]), log[first : last + 1], "pieces by readinto")

    def test_reading_after_the_end_gives_nothing(self, manager: RemoteStorageManager) -> None:
        """At its end a stream gives b"", as often as it is asked."""
        copied = self.copied(manager)
        with manager.fetch_log_segment(copied, 10, 19) as stream:
            expect.same_bytes(stream.read(), LOG_BYTES[10:20], "bytes [10, 19]")
            for size in (-1, 1, 100):
                expect.same_bytes(stream.read(size), b"", f"read({size}) after the end")

    def test_a_stream_may_be_closed_before_its_end(self, manager: RemoteStorageManager) -> None:
        """Streams may be closed before their end, and closed again; nothing runs out by that."""
        copied, log = self.large(manager)
        for _ in range(_EARLY_CLOSES):
            stream = manager.fetch_log_segment(copied, 0)
            expect.same_bytes(_exactly(stream, 10), log[:10], "the first ten bytes")
            stream.close()
            stream.close()
        manager.fetch_log_segment(copied, 0).close()
        expect.reads(lambda: manager.fetch_log_segment(copied, 5, 9), log[5:10], "bytes [5, 9]")

    def test_streams_of_one_segment_are_independent(self, manager: RemoteStorageManager) -> None:
        """Several streams of one segment do not disturb each other."""
        copied = self.copied(manager)
        with (
            manager.fetch_log_segment(copied, 0) as one,
            manager.fetch_log_segment(copied, 1_000) as two,
        ):
            expect.same_bytes(_exactly(one, 7), LOG_BYTES[:7], "the first stream")
            expect.reads(
                lambda: manager.fetch_log_segment(copied, 3, 5), LOG_BYTES[3:6], "bytes [3, 5]"
            )
            expect.same_bytes(_exactly(two, 5), LOG_BYTES[1_000:1_005], "the second stream")
            expect.same_bytes(_exactly(one, 5), LOG_BYTES[7:12], "the first stream, again")

    def test_closing_with_a_stream_open_does_not_hang(self, manager: RemoteStorageManager) -> None:
        """Closing the plugin returns also with a stream open, and may be done twice."""
        copied, log = self.large(manager)
        stream = manager.fetch_log_segment(copied, 0)
        head = _exactly(stream, 10)
        expect.same_bytes(head, log[:10], "the first ten bytes")
        expect.together([manager.close], deadline_s=self.deadline_s, what="close")

        def rest() -> bytes | None:
            try:
                return stream.read()
            except (RemoteStorageError, OSError, ValueError):
                return None  # a closed store may report an error instead

        [tail] = expect.together([rest], deadline_s=self.deadline_s, what="reading after close")
        stream.close()
        if tail is not None:
            expect.same_bytes(head + tail, log, "a stream read after the plugin was closed")
        manager.close()


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """The next `size` bytes; fewer only at the end."""
    got = b""
    while len(got) < size and (more := stream.read(size - len(got))):
        got += more
    return got
