"""Error elements put into an answer to Fetch whose records are regions of files.

Such an answer is a list of bytes and regions, which is not decoded. Its list of topics begins in
the first part, so further topics go in right behind the count of that list.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import encode_uvarint, read_uvarint

_FLEXIBLE_SINCE: Final = 12
_SESSIONS_SINCE: Final = 7
_COUNT = Struct(">i")


def splice(parts: Sequence[object], failed: Any, version: int) -> list[object]:
    """Add the topics of one answer to another.

    Args:
        parts: The body of an answer as `broker.handlers.fetch_codec` makes it.
        failed: An answer with the topics to be added.
        version: Of both.
    """
    extra = codec.response(ApiKey.FETCH).encode(failed, version)
    count_at = 10 if version >= _SESSIONS_SINCE else 4
    is_flexible = version >= _FLEXIBLE_SINCE
    first = bytes(parts[0])  # type: ignore[call-overload]  # bytes: no answer begins with a region
    count, body_at = _read_count(first, count_at, is_flexible=is_flexible)
    extra_count, extra_at = _read_count(extra, count_at, is_flexible=is_flexible)
    # In the answer that was made here only one byte follows the list: no tagged fields.
    topics = extra[extra_at:-1] if is_flexible else extra[extra_at:]
    total = count + extra_count
    counted = encode_uvarint(total + 1) if is_flexible else _COUNT.pack(total)
    return [first[:count_at] + counted + topics + first[body_at:], *parts[1:]]


def _read_count(body: bytes, at: int, *, is_flexible: bool) -> tuple[int, int]:
    """Length of the array that begins at `at`, and the position of its first element."""
    if is_flexible:
        count, end = read_uvarint(body, at)
        return count - 1, end
    return int(_COUNT.unpack_from(body, at)[0]), at + _COUNT.size
