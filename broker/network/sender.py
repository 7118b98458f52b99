"""What waits to be sent to one peer: bytes of ours and regions of files.

Bytes that stand together go out in one call. A region goes out by sendfile without passing the
heap, but only where the page cache holds it: a page fault here would stall every client of the
broker. A cold piece is named to the caller, which has it read by a thread and puts it back.

A fetch of thousands of partitions is answered with as many regions, each some calls of the system;
and a peer that reads as fast as we send never fills its socket. So a time slice ends after some
calls or some bytes, and the caller sends on when everybody else has had theirs.
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
"""Up to here joining parts and one plain send is cheaper than a gather list."""

GATHER_PARTS_MAX = 512
PIECE_BYTES = 1024 * 1024
"""How much of a region is probed, sent or warmed at a time."""
SLICE_CALLS = 128
"""So many parts or runs of parts are sent in one time slice: 1 to 2 ms."""
SLICE_BYTES = 8 * PIECE_BYTES
"""So many bytes are sent in one time slice, or one call more: 2 to 4 ms."""


class SendFailed(TidemarkError):
    """The answer cannot be completed; the stream is useless from here on."""


class FileFailed(SendFailed):
    """A file could not be read: not the peer's fault.

    Attributes:
        path: of the file.
        error: why.
    """

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"cannot read {path}: {error}")
        self.path, self.error = path, error


class Sender:
    """The queue of one connection's output.

    Attributes:
        queue: the parts that wait.
        sending: the answers that were not noted as sent, the oldest first.
        unsent_bytes: what waits, regions included.
        slice_is_over: the last `send` left something although the socket is not full.
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
        self._probed_end = 0  # of the same region: known to be resident up to here
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
        """What waits but for the regions of files."""
        return self.unsent_bytes - self._region_bytes

    def send(self) -> FileRegion | None:
        """Send until nothing is left, the socket is full or the time slice is over.

        Returns:
            A cold piece that must be given to `replace_head` before sending continues, else None.

        Raises:
            OSError: the peer is gone.
            FileFailed: a file cannot be read.
            SendFailed: a file is shorter than the region that was promised from it.
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
        """Note that all answers of which nothing waits any more are sent now (monotonic)."""
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
        """Put the bytes of a cold piece in its place."""
        if len(data) != piece.size_bytes:
            raise SendFailed(f"{piece.file.path} is shorter than the region promised from it")
        self._advance_region(piece.size_bytes)
        self.queue.appendleft(data)

    def _send_bytes(self) -> bool:
        """Send the bytes up to the next region; say whether all of them went out."""
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
            # More follows at once: do not send a packet for a header alone.
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
