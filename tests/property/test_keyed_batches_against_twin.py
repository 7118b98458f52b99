"""The short way to a batch of keys and values makes the bytes of the long one."""

from hypothesis import example, given
from hypothesis import strategies as st

from kafka_protocol.records.batch import Codec
from kafka_protocol.records.keyed import keyed_batch
from kafka_protocol.records.records import build_batch

Pair = tuple[bytes, bytes | None]
SIZES = st.sampled_from([0, 63, 64, 1_023, 1_024, 70_000])
BYTES = st.one_of(st.binary(max_size=80), SIZES.map(bytes))
PAIRS = st.lists(st.tuples(BYTES, st.none() | BYTES), min_size=1, max_size=20)


@given(pairs=PAIRS, at_ms=st.integers(0, 1 << 41), codec=st.sampled_from(list(Codec)))
@example(pairs=[(b"k", b"v")] * 1_100, at_ms=1, codec=Codec.NONE)
def test_a_batch_of_keys_and_values_has_the_bytes_of_the_usual_way(
    pairs: list[Pair], at_ms: int, codec: int
) -> None:
    usual = build_batch([(at_ms, key, value, ()) for key, value in pairs], codec=codec)
    assert keyed_batch(pairs, timestamp_ms=at_ms, codec=codec) == usual
