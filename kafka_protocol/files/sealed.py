"""Text files of Tidemark with their checksum in the last line, `crc 1b2c3d4e`."""

from crc32c import crc32c

from kafka_protocol.errors import CorruptFileError


def seal(lines: list[str]) -> bytes:
    """Write lines and, below them, the CRC32C of all bytes before it."""
    text = "\n".join([*lines, ""]).encode()
    return text + f"crc {crc32c(text):08x}\n".encode()


def unseal(data: bytes, *, head: str) -> list[str]:
    """Read the lines below the first one.

    Args:
        data: The whole file.
        head: The required first line: name and version of the format.

    Raises:
        CorruptFileError: Cut, changed, or of another version.
    """
    text, mark, crc = data.rpartition(b"crc ")
    try:
        is_whole = bool(mark) and int(crc, 16) == crc32c(text)
        lines = text.decode().splitlines()
    except ValueError as error:
        raise CorruptFileError(f"{head}: {error}") from error
    if not is_whole or not lines:
        raise CorruptFileError(f"{head}: its own checksum is wrong")
    if lines[0] != head:
        raise CorruptFileError(f"{head}: of another version: {lines[0][:40]!r}")
    return lines[1:]
