"""Any bytes into every pure decoder: only the declared errors come out, and the cost is linear.

Half of the bytes are sound ones with wounds; messages are written by the grammar of their schemas.
The cost is counted: lines of Python and the peak of memory, both by the length of the bytes, so
that no length inside them is believed before it is checked.
"""

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, request, response
from kafka_protocol.wire.messages import FAMILIES
from tests.support.brokers.process import ROOT
from tests.support.fuzz.cost import Counted, TooManyLinesError
from tests.support.fuzz.decoder import Decoder
from tests.support.fuzz.decoders import DECODERS
from tests.support.fuzz.grammar import RequestWriter
from tests.support.rounds import rounds

EXAMPLES = rounds("TIDEMARK_FUZZ_EXAMPLES", quick=100, full=2_000)
LINES_BASE, LINES_PER_BYTE = 1_500, 60
COMPILING_LINES = 500_000
"""More that it may take to read the first of its kind."""
BYTES_BASE, BYTES_PER_BYTE = 300_000, 400
PIECES = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff" * 4, b"\x7f\xff\xff\xff")

pytestmark = [
    pytest.mark.lasts(seconds=8),
    pytest.mark.rounds(seconds=120),
    pytest.mark.timeout(3600),
]


@st.composite
def wounded(draw: st.DrawFn, samples: list[bytes]) -> bytes:
    """A sample with some wounds: at any place a bit, a piece, or nothing any more."""
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                piece = draw(st.sampled_from(PIECES) | st.binary(max_size=9))
                data[at : at + len(piece)] = piece
            case 2:
                del data[at : at + draw(st.integers(1, 8))]
            case 3:
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del data[at:]
    return bytes(data)


def validated(decoder: Decoder, data: bytes) -> None:
    """Decode; what is declared may come, and nothing may cost more than the bytes can explain."""
    complaint = too_much(decoder, data, COMPILING_LINES)
    if complaint:
        complaint = too_much(decoder, data, 0)
    assert not complaint


def too_much(decoder: Decoder, data: bytes, more_lines: int) -> str:
    lines_max = LINES_BASE + LINES_PER_BYTE * (len(data) + decoder.inflates)
    counted = Counted(lines_max + more_lines)
    try:
        with counted, suppress(*decoder.errors):
            decoder.read(data)
    except TooManyLinesError:
        return f"it runs on and on for {len(data)} bytes: {data.hex()}"
    lines, peak = counted.cost
    if lines > lines_max:
        return f"{lines} lines for {len(data)} bytes: {data.hex()}"
    if peak > BYTES_BASE + BYTES_PER_BYTE * len(data) + 4 * decoder.inflates:
        return f"{peak} bytes of memory for {len(data)}: {data.hex()}"
    return ""


@pytest.mark.parametrize("name", DECODERS)
def test_only_declared_errors_come_out_of_a_decoder(name: str) -> None:
    decoder = DECODERS[name]
    samples = decoder.samples() or [b""]

    @settings(max_examples=EXAMPLES)
    @given(st.binary(max_size=300) | wounded(samples))
    def decode(data: bytes) -> None:
        validated(decoder, data)

    decode()
    for sample in samples:
        validated(decoder, sample)


CORPUS = sorted((ROOT / "tests/fuzz/decoders").glob("*.bin"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_found_once_is_damage(path: Path) -> None:
    """A file is called `<decoder>.<what>.bin`."""
    decoder = DECODERS[path.name.split(".")[0].replace("_", " ")]
    with pytest.raises(decoder.errors):
        decoder.read(path.read_bytes())


JSON = {
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 20_000,
    "long number": b"9" * 5_000,
    "infinite": b'{"data_version": 1e999, "votedId": 1e999, "version": 1e999}',
    "half a letter": b'"\\ud800"',
    "no text": b"\xff\xfe",
    "null": b"null",
}


@pytest.mark.parametrize("name", ["quorum-state", "remote claim", "remote manifest"])
@pytest.mark.parametrize("text", JSON)
def test_json_of_strangers_is_damage(name: str, text: str) -> None:
    with pytest.raises(DECODERS[name].errors):
        DECODERS[name].read(JSON[text])


MESSAGES = sorted(
    {request(key).name for key in ApiKey} | {response(key).name for key in ApiKey} | set(FAMILIES)
)


@settings(max_examples=EXAMPLES * 5)
@given(st.sampled_from(MESSAGES), st.integers(0, 2**32), st.data())
def test_only_malformed_comes_out_of_a_message(name: str, seed: int, data: st.DataObject) -> None:
    schema, rng = message(name), random.Random(seed)
    version = rng.randint(schema.min_version, schema.max_version)
    body = RequestWriter(rng).body(schema.struct, version, flexible=schema.is_flexible(version))
    if rng.random() < 0.5:
        body = data.draw(wounded([body]))
    decoder = Decoder(lambda raw: schema.decode(raw, version), (MalformedMessageError,))
    validated(decoder, body)
    validated(decoder, rng.randbytes(rng.randrange(60)))


def test_a_message_of_the_grammar_is_decoded_whole() -> None:
    """The writer is another than the product's: both read the schema alike."""
    rng = random.Random(7)
    writer = RequestWriter(rng)
    for name in MESSAGES:
        schema = message(name)
        for version in range(schema.min_version, schema.max_version + 1):
            flexible = schema.is_flexible(version)
            body = writer.body(schema.struct, version, flexible=flexible)
            if not writer.wounds:
                assert schema.decode(body, version)[1] == len(body), (name, version)
