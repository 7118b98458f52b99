"""Memory of frames: as much as has come, and kept within bounds."""

from mmap import mmap

from broker.network.buffers import FIRST_BYTES, KEPT_BUFFERS, KEPT_BYTES_MAX, FrameBuffers


def test_a_frame_that_is_only_announced_costs_little() -> None:
    buffers = FrameBuffers()
    assert len(buffers.take(1 << 24)) == FIRST_BYTES
    assert len(buffers.take(1_000)) == 1_000


def test_a_buffer_grows_to_the_frame_and_keeps_its_bytes() -> None:
    buffers = FrameBuffers()
    buffer = buffers.take(1 << 24)
    buffer[:3] = b"abc"
    longer = buffers.grow(buffer, 1 << 24)
    assert (len(longer), bytes(longer[:3])) == (2 * FIRST_BYTES, b"abc")
    assert len(buffers.grow(longer, 3 * FIRST_BYTES)) == 3 * FIRST_BYTES


def test_a_very_large_frame_has_pages_of_its_own_and_nothing_of_it_is_kept() -> None:
    buffers = FrameBuffers()
    full = bytearray(b"abc").ljust(KEPT_BYTES_MAX)
    longer = buffers.grow(full, 100 << 20)
    assert isinstance(longer, mmap), "the heap may keep what was freed"
    assert (len(longer), longer[:3]) == (100 << 20, b"abc")
    buffers.give_back(longer)
    assert buffers._free == [full]


def test_few_buffers_are_kept_and_no_large_ones() -> None:
    buffers = FrameBuffers()
    given_back = [bytearray(10) for _ in range(KEPT_BUFFERS + 5)]
    for buffer in given_back:
        buffers.give_back(buffer)
    taken = [buffers.take(10) for _ in given_back]
    assert sum(any(one is each for each in given_back) for one in taken) == KEPT_BUFFERS
    large = bytearray(KEPT_BYTES_MAX + 1)
    buffers.give_back(large)
    assert buffers.take(10) is not large


def test_what_nobody_needed_for_a_while_is_freed() -> None:
    buffers = FrameBuffers()
    kept = buffers.take(10)
    buffers.give_back(kept)
    buffers.trim()  # it was used since the last time
    assert buffers.take(10) is kept
    buffers.give_back(kept)
    buffers.trim()
    buffers.trim()
    assert buffers.take(10) is not kept
