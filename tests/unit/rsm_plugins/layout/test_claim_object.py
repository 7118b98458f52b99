from contextlib import suppress

import pytest

from rsm_plugins.layout.claim_object import claim_key, dump_claim, is_claim, parse_claim
from rsm_plugins.layout.objects import DamagedObjectError, check_key, parse_key

NUMBER = 1_795_324_619_912


@pytest.mark.parametrize("number", [0, 1, NUMBER, 2**63 - 1])
def test_a_claim_comes_back(number: int) -> None:
    assert parse_claim(dump_claim("c", 1, number), "c", 1) == number


def test_all_claims_of_a_broker_have_the_same_size() -> None:
    assert {len(dump_claim("c" * 22, 1, n)) for n in (0, NUMBER, 2**63 - 1)} == {256}


def test_each_flipped_bit_is_noticed_or_harmless() -> None:
    content = bytearray(dump_claim("c", 1, NUMBER))
    for bit in range(len(content) * 8):
        content[bit // 8] ^= 1 << bit % 8
        with suppress(DamagedObjectError):
            assert parse_claim(bytes(content), "c", 1) == NUMBER
        content[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"7",
        dump_claim("c", 1, NUMBER)[:40],
        dump_claim("c", 1, NUMBER)[:40] + dump_claim("c", 1, NUMBER)[:40],
        dump_claim("c", 2, NUMBER),
        dump_claim("d", 1, NUMBER),
        dump_claim("c", 1, NUMBER).replace(b'"version": 1', b'"version": 2'),
        dump_claim("c", 1, 2**63),
        dump_claim("c", 1, -1),
    ],
)
def test_what_is_not_this_brokers_claim_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedObjectError):
        parse_claim(content, "c", 1)


@pytest.mark.parametrize(
    "cluster_id", ["", ".", "..", "../x", "a/b", "ä", "x\0", "MkU3OEVBNTcwNTJENDM2Qk"]
)
def test_no_cluster_id_leads_out_of_the_folder(cluster_id: str) -> None:
    key = claim_key(cluster_id, 1)
    assert check_key(key) == key
    assert key.count("/") == 2
    assert is_claim(key)
    assert parse_key(key) is None


def test_cluster_ids_have_names_of_their_own() -> None:
    ids = ["", ".", "..", "%", "%2E", "%2E%2E", "a", "a/", "A", "%."]
    assert len({claim_key(one, 1) for one in ids}) == len(ids)
