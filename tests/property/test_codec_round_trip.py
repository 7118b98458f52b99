"""Every message in every version: what is encoded decodes to the same; what is cut is refused."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import Message, message, request, response
from kafka_protocol.wire.messages import FAMILIES
from tests.support.rounds import rounds
from tests.support.samples.any_message import versions_and_values

pytestmark = pytest.mark.lasts(seconds=12)

MESSAGES = [name for key in ApiKey for name in (request(key).name, response(key).name)]
MESSAGES += list(FAMILIES)


def some(name: str, data: st.DataObject) -> tuple[Message, int, Any]:
    version, value = data.draw(versions_and_values(name))
    return message(name), version, value


QUICK = settings(
    max_examples=rounds("TIDEMARK_CODEC_EXAMPLES", quick=3, full=8),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.rounds(seconds=0.1)
@QUICK
@given(data=st.data())
def test_a_value_decodes_to_itself_and_encodes_to_the_same_bytes(
    name: str, data: st.DataObject
) -> None:
    schema, version, value = some(name, data)
    encoded = schema.encode(value, version)
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        decoded, end = schema.decode(buffer, version)
        assert decoded == value
        assert end == len(encoded)
    assert schema.encode(decoded, version) == encoded
    assert b"".join(schema.encode_parts(value, version)) == encoded
    # Behind an offset, and with bytes of someone else after it.
    decoded, end = schema.decode(b"abc" + encoded + b"surplus", version, 3)
    assert (decoded, end) == (value, 3 + len(encoded))


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.rounds(seconds=0.1)
@QUICK
@given(data=st.data())
def test_bytes_cut_anywhere_are_malformed(name: str, data: st.DataObject) -> None:
    schema, version, value = some(name, data)
    encoded = schema.encode(value, version)
    for size in range(len(encoded)):
        with pytest.raises(MalformedMessageError):
            schema.decode(encoded[:size], version)
