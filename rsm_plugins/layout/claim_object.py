"""A broker's claim on a store: the name and the bytes of its object, in our layout.

A claim is the highest number that a broker's tier has taken while it wrote to this store. Its
object is `claims/<cluster id>/<node id>`, beside the folders of the topics. A topic's folder ends
with the topic's id, and S3's entropy is hex: neither is ever called `claims`.

The object is one line of JSON, such as
`{"version": 1, "clusterId": "...", "nodeId": 1, "number": 7, "crc32c":
123}`. The CRC32C is that of the text `<version> <cluster id> <node id>
<number>`. Spaces before the line end make its size a multiple of 256. So a new claim has the size
of the old one. A reader that first asks for the size and then for the bytes never gets a truncated
claim. Pure: no store, no clock.
"""

import json
from typing import Any
from urllib.parse import quote

from crc32c import crc32c

from rsm_plugins.layout.objects import DamagedObjectError

FOLDER = "claims"
CLAIM_VERSION = 1
CLAIM_BYTES_MAX = 4_096
"""Above the size of any claim: a larger object is something else."""
NUMBER_MAX = 2**63 - 1
_CAPACITY_BYTES = 256


def claim_key(cluster_id: str, node_id: int) -> str:
    """Name of the claim's object; no cluster id leads out of the folder."""
    part = quote(cluster_id, safe="")
    if not part.strip("."):  # empty, `.` or `..`
        part = "%" + part.replace(".", "%2E")
    return f"{FOLDER}/{part}/{node_id:d}"


def is_claim(key: str) -> bool:
    """True if the object of that name is a claim, and so not part of a segment."""
    return key.startswith(FOLDER + "/")


def dump_claim(cluster_id: str, node_id: int, number: int) -> bytes:
    """The bytes of a claim."""
    document = {
        "version": CLAIM_VERSION,
        "clusterId": cluster_id,
        "nodeId": node_id,
        "number": number,
        "crc32c": _crc(cluster_id, node_id, number),
    }
    text = json.dumps(document).encode()
    size = -(-(len(text) + 1) // _CAPACITY_BYTES) * _CAPACITY_BYTES
    return text.ljust(size - 1) + b"\n"


def parse_claim(data: bytes, cluster_id: str, node_id: int) -> int:
    """The number of a claim.

    Raises:
        DamagedObjectError: It is truncated, changed, of another version, or another broker's.
    """
    try:
        document: Any = json.loads(data)
        number = document["number"]
        says = document["version"], document["clusterId"], document["nodeId"], document["crc32c"]
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise DamagedObjectError(f"a claim cannot be read: {e}") from e
    if type(number) is not int or not 0 <= number <= NUMBER_MAX:
        raise DamagedObjectError(f"a claim has number={number!r}")
    if says != (CLAIM_VERSION, cluster_id, node_id, _crc(cluster_id, node_id, number)):
        raise DamagedObjectError(f"a claim is damaged or another broker's: {data[:200]!r}")
    return number


def _crc(cluster_id: str, node_id: int, number: int) -> int:
    return crc32c(f"{CLAIM_VERSION} {cluster_id} {node_id} {number}".encode())
