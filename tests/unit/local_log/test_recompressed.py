"""What becomes of a batch whose topic has a codec of its own."""

import struct
import tracemalloc
import zlib

import cramjam
import pytest
import zstandard

from broker.config.topic_config import log_config
from kafka_protocol.records.batch import HEADER_SIZE, has_valid_crc, read_header, write_crc
from kafka_protocol.records.records import build_batch, iter_records
from local_log.errors import MessageTooLarge
from local_log.log.opened_batches import opened
from tests.support.samples.config import load
from tests.support.worlds.local_log import NOW_MS

WORDS = b"".join(b"word-%d " % (number * 7919 % 1000) for number in range(20_000))


def config_of(**settings):
    return log_config(
        load(), {name.replace("_", "."): str(value) for name, value in settings.items()}
    )


def again(batch, config):
    return opened(batch, read_header(batch), config, NOW_MS)


def gzip_of(records, level):
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(records) + packer.flush()


def lz4_of(records, level):
    frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    frame.compress(records)
    return bytes(frame.finish())


def zstd_of(records, level):
    return zstandard.ZstdCompressor(level=level).compress(records)


@pytest.mark.parametrize(
    ("codec", "level", "by_library"),
    [("gzip", level, gzip_of) for level in (-1, 1, 9)]
    + [("lz4", level, lz4_of) for level in (1, 9, 17)]
    + [("zstd", level, zstd_of) for level in (-131072, 1, 3, 22)],
)
def test_the_bytes_are_those_of_the_library_at_the_topics_level(codec, level, by_library):
    plain = build_batch([(NOW_MS, b"key", WORDS, [])] * 20)
    config = config_of(
        compression_type=codec,
        max_message_bytes=1 << 24,
        **{f"compression_{codec}_level": level},
    )
    assert bytes(again(plain, config)[HEADER_SIZE:]) == by_library(
        bytes(plain[HEADER_SIZE:]), level
    )


@pytest.mark.parametrize(
    ("codec", "default", "by_library"),
    [("gzip", -1, gzip_of), ("lz4", 9, lz4_of), ("zstd", 3, zstd_of)],
)
def test_without_a_level_it_is_kafkas_default(codec, default, by_library):
    plain = build_batch([(NOW_MS, b"key", WORDS, [])])
    built = again(plain, config_of(compression_type=codec))
    assert bytes(built[HEADER_SIZE:]) == by_library(bytes(plain[HEADER_SIZE:]), default)


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", range(5))
def test_records_of_several_pieces_are_the_same_in_any_codec(codec, target):
    records = [
        (NOW_MS + n % 3, b"k%d" % n, WORDS[: n * 97 % 9000], [("h", b"v")]) for n in range(200)
    ]
    options = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40, "is_transactional": True}
    batch = build_batch([*records, (NOW_MS, b"long", WORDS * 4, [])], codec=codec, **options)
    built = again(
        batch,
        config_of(compression_type=target, cleanup_policy="compact", max_message_bytes=1 << 24),
    )
    assert has_valid_crc(built, 0, read_header(built))
    assert list(iter_records(built)) == list(iter_records(batch))
    names = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
    assert read_header(built)._replace(batch_length=0, crc=0) == read_header(batch)._replace(
        batch_length=0, crc=0, attributes=0x10 | names.index(target)
    )


def test_the_max_timestamp_is_of_the_records_even_if_the_header_differs():
    batch = build_batch([(NOW_MS, b"k", b"v", []), (NOW_MS - 9, b"k", b"v", [])])
    struct.pack_into(">q", batch, 35, NOW_MS - 5)
    write_crc(batch, 0, len(batch))
    assert read_header(again(batch, config_of(compression_type="zstd"))).max_timestamp == NOW_MS


def test_what_becomes_too_large_is_not_built_to_its_end():
    batch = build_batch([(NOW_MS, b"key", bytes(16 << 20), [])], codec=1)
    config = config_of(compression_type="uncompressed", max_message_bytes=1 << 20)
    tracemalloc.start()
    with pytest.raises(MessageTooLarge):
        again(batch, config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
