"""A mapped file lives exactly as long as a slice of it."""

from runtime.disk import Disk, Mapping


def test_the_end_is_told_once_when_the_last_slice_is_gone() -> None:
    disk, told = Disk(), list[str]()
    file = disk.memfd("chunk")
    disk.write_at(file, 0, b"0123456789")
    view = Mapping.of(file, 8, lambda: told.append("ended"))
    assert file.fd == -1, "the mapping alone keeps the memory"
    part = view[2:5]
    del view
    assert (bytes(part), told) == (b"234", [])
    inner = part[1:]
    del part
    assert (bytes(inner), told) == (b"34", [])
    del inner
    assert told == ["ended"]


def test_a_mapping_cannot_be_written() -> None:
    disk = Disk()
    file = disk.memfd("chunk")
    disk.write_at(file, 0, b"0123")
    assert Mapping.of(file, 4, lambda: None).readonly
