"""Compression. Where a topic needs records opened, a bomb is refused."""

import zlib

from tests.support.bad_input.case import case
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import with_records
from tests.support.brokers.raw_client import log_end, produce


def gzip_of_a_gib() -> bytes:
    """The same compressed 16 MiB again and again; its end is never reached."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(7) + piece * 64 + b"\x03\x00" + bytes(8)


@case("N052")
def a_bomb(stage: Stage) -> None:
    topic = stage.topic(cleanup_policy="compact", max_message_bytes="2097152")
    sent = with_records(1, gzip_of_a_gib())
    assert produce(stage.client, topic, sent).error_code == 10
    assert log_end(stage.client, topic) == 0
