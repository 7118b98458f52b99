"""The output queue of one connection: bytes and regions of files.

Consecutive bytes are sent in one call. A region that is in the page cache is sent by sendfile,
without a copy in the heap. A page fault here would stall all clients of the broker. So `send`
returns a cold piece to its caller, which has a thread read it, and then calls `replace_head`.

The answer to a fetch of thousands of partitions has as many regions, at some system calls each. A
peer that reads as fast as the broker sends never fills its socket. So a time slice ends after a
number of calls or bytes, and the caller continues after the other connections.
"""

import socket
from collections import deque
from itertools import islice
from pathlib import Path

from broker.network.dispatch import Answer, Sending
from broker.network.request_times import SLOW_NS
from kafka_protocol.errors import TidemarkError
from runtime.disk import Disk, FileRegion
from runtime.disk_errors import PEER

JOIN_BYTES_MAX = 64 * 1024
"""Up to this size, joining parts and one plain send is cheaper than a gather list."""

GATHER_PARTS_MAX = 512
PIECE_BYTES = 1024 * 1024
"""Size of the piece of a region that is probed, sent or read at a time."""
SLICE_CALLS = 128
"""Runs of parts sent in one time slice: 1 to 2 ms."""
SLICE_BYTES = 8 * PIECE_BYTES
"""Bytes sent in one time slice, plus those of one call: 2 to 4 ms."""


class SendFailed(TidemarkError):
    """The answer cannot be completed, so the connection must close."""


class FileFailed(SendFailed):
    """A file could not be read; the peer is not at fault.

    Attributes:
        path: Path of the file.
        error: Cause.
    """

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"cannot read {path}: {error}")
        self.path, self.error = path, error


class Sender:
    """The output queue of one connection.

    Attributes:
        queue: Unsent parts.
        sending: Answers not yet recorded as sent, the oldest first.
        unsent_bytes: Size of the queue, regions included.
        slice_is_over: The last `send` ended before the socket was full or the queue empty.
    """

    __slots__ = (
        "_disk",
        "_fd",
        "_probed_end",
        "_region_bytes",
        "_region_sent",
        "_regions",
        "_sock",
        "queue",
        "sending",
        "slice_is_over",
        "unsent_bytes",
    )

    def __init__(self, sock: socket.socket, disk: Disk) -> None:
        self._sock, self._fd, self._disk = sock, sock.fileno(), disk
        self.queue: deque[object] = deque()
        self.sending: list[Sending] = []
        self._regions = 0
        self._region_bytes = 0
        self._region_sent = 0  # of the region at the head of the queue
        self._probed_end = 0  # of the same region: exclusive end of the resident part
        self.unsent_bytes = 0
        self.slice_is_over = False

    def add(self, answer: Answer) -> None:
        """Queue the parts of a response frame."""
        parts, size_bytes, sending = answer
        self.queue.extend(parts)
        self.sending.append(sending)
        self.unsent_bytes += size_bytes
        if len(parts) > 1:
            regions = [part.size_bytes for part in parts if type(part) is FileRegion]
            self._regions += len(regions)
            self._region_bytes += sum(regions)

    @property
    def memory_bytes(self) -> int:
        """Size of the queue without regions of files."""
        return self.unsent_bytes - self._region_bytes

    def send(self) -> FileRegion | None:
        """Send until nothing is left, the socket is full or the time slice is over.

        Returns:
            A cold piece that must be given to `replace_head` before sending continues, else None.

        Raises:
            OSError: The peer is gone.
            FileFailed: A file cannot be read.
            SendFailed: A file is shorter than its region.
        """
        calls_left, floor_bytes = SLICE_CALLS, self.unsent_bytes - SLICE_BYTES
        self.slice_is_over = False
        try:
            while self.queue:
                if calls_left == 0 or self.unsent_bytes < floor_bytes:
                    self.slice_is_over = True
                    return None
                calls_left -= 1
                head = self.queue[0]
                if type(head) is FileRegion:
                    cold = self._cold_piece(head)
                    if cold is not None:
                        return cold
                    if not self._send_region(head):
                        return None
                elif not self._send_bytes():
                    return None
        except BlockingIOError:
            pass
        return None

    def note_sent(self, now_ns: int) -> None:
        """Record the answers that have been sent completely by `now_ns` (monotonic)."""
        sent, left_bytes = self.sending, self.unsent_bytes
        if left_bytes:
            count = len(sent)
            while left_bytes > 0:
                count -= 1
                left_bytes -= sent[count][0]
            self.sending, sent = sent[count:], sent[:count]
        for _, ready_ns, of_api, times in sent:
            if times or now_ns - ready_ns >= SLOW_NS:
                of_api.sent(now_ns - ready_ns, times)
        sent.clear()

    def replace_head(self, piece: FileRegion, data: bytes) -> None:
        """Put the bytes of a cold piece in its place.

        Raises:
            SendFailed: The file was shorter than its region.
        """
        if len(data) != piece.size_bytes:
            raise SendFailed(f"{piece.file.path} is shorter than the region promised from it")
        self._advance_region(piece.size_bytes)
        self.queue.appendleft(data)

    def _send_bytes(self) -> bool:
        """Send the bytes up to the next region; returns whether all were sent."""
        queue = self.queue
        if not self._regions:
            flags = 0
            if self.unsent_bytes <= JOIN_BYTES_MAX:
                parts: list[object] = [b"".join(queue)] if len(queue) > 1 else [queue[0]]  # type: ignore[arg-type]
                if len(queue) > 1:
                    queue.clear()
                    queue.append(parts[0])
            else:
                parts = list(islice(queue, GATHER_PARTS_MAX))
        else:
            # A region follows: avoid a packet with the header alone.
            flags = socket.MSG_MORE
            parts = []
            for part in islice(queue, GATHER_PARTS_MAX):
                if type(part) is FileRegion:
                    break
                parts.append(part)
        if len(parts) == 1:
            sent = self._sock.send(parts[0], flags)  # type: ignore[arg-type]
        else:
            sent = self._sock.sendmsg(parts, (), flags)  # type: ignore[arg-type]
        self.unsent_bytes -= sent
        for part in parts:
            size = len(part)  # type: ignore[arg-type]
            if sent < size:
                queue[0] = memoryview(part)[sent:]  # type: ignore[arg-type]
                return False
            sent -= size
            queue.popleft()
        return True

    def _cold_piece(self, region: FileRegion) -> FileRegion | None:
        if self._region_sent < self._probed_end:
            return None
        position = region.position + self._region_sent
        size = min(PIECE_BYTES, region.size_bytes - self._region_sent)
        try:
            is_resident = self._disk.is_resident(region.file, position, size)
        except OSError as error:
            raise FileFailed(region.file.path, error) from error
        if is_resident:
            self._probed_end = self._region_sent + size
            return None
        return FileRegion(region.file, position, size)

    def _send_region(self, region: FileRegion) -> bool:
        size = self._probed_end - self._region_sent
        position = region.position + self._region_sent
        if size:
            try:
                sent = self._disk.send_file(self._fd, region.file, position, size)
            except OSError as error:
                if error.errno in PEER or isinstance(error, BlockingIOError):
                    raise
                raise FileFailed(region.file.path, error) from error
            if sent == 0:
                raise SendFailed(f"{region.file.path} is shorter than the region promised from it")
            self._advance_region(sent)
            self.unsent_bytes -= sent
            return sent == size
        self._advance_region(0)
        return True

    def _advance_region(self, size_bytes: int) -> None:
        self._region_sent += size_bytes
        self._region_bytes -= size_bytes
        region = self.queue[0]
        assert type(region) is FileRegion
        if self._region_sent >= region.size_bytes:
            self.queue.popleft()
            self._regions -= 1
            self._region_sent = self._probed_end = 0
