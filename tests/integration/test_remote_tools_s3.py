"""`tidemark remote audit` over S3, with the hashed folders that its keys may have."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from kafka_protocol.wire.primitives import uuid_to_text
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import TIERED, create, values
from tests.support.stores.s3 import CREDENTIALS, REGION, S3Endpoint

RECORDS = values(1_200)
PREFIX = "tier/"
LEAKED_ID = bytes(15) + b"\x07"


@pytest.mark.smoke
@pytest.mark.parametrize("entropy_chars", [pytest.param(0, marks=pytest.mark.long), 4])
def test_an_audit_of_a_bucket_finds_damage_and_repairs_orphans(
    s3: S3Endpoint,
    make_broker: Callable[..., BrokerProcess],
    monkeypatch: pytest.MonkeyPatch,
    entropy_chars: int,
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket, client = s3.new_bucket(), s3.client()
    store = {
        "remote.log.storage.manager.class.name": "rsm_plugins.s3:S3RemoteStorageManager",
        "rsm.config.bucket": bucket,
        "rsm.config.region": REGION,
        "rsm.config.endpoint.url": s3.url,
        "rsm.config.prefix": PREFIX,
        "rsm.config.prefix.entropy.chars": str(entropy_chars),
    }
    small = {"log.segment.bytes": "1048576"}
    broker = make_broker("s3", tiered=True, store=store, settings=small).start()

    def audit(*arguments: str) -> tuple[int, dict[str, Any]]:
        config = ("--config", str(broker.config_file), "--bootstrap-server", broker.bootstrap)
        done = broker.command("remote", "audit", "--json", *config, *arguments)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    create(broker, "tides", **TIERED)
    produce(broker, "tides", RECORDS)
    until(lambda: len(broker.local_segments("tides")) == 1, "the closed segments are in S3 only")
    code, found = audit("--deep")
    assert (code, found["findings"]) == (0, [])
    own = [key for key in s3.keys(bucket) if "claims/" not in key]
    keys = sorted(own, key=lambda key: key.rpartition("/")[2])
    assert found["summary"]["objects"] == len(keys)
    assert all((key.count("/") == 4) is bool(entropy_chars) for key in keys)

    logs = [key for key in keys if key.endswith(".log")]
    client.delete_object(Bucket=bucket, Key=logs[0])
    body = bytearray(client.get_object(Bucket=bucket, Key=logs[1])["Body"].read())
    body[5_000] ^= 1
    client.put_object(Bucket=bucket, Key=logs[1], Body=bytes(body))
    client.put_object(Bucket=bucket, Key=f"{PREFIX}readme.txt", Body=b"hello")
    folder = "/".join(logs[0].split("/")[-3:-1])
    spread = f"{crc32c(LEAKED_ID):08x}"[:entropy_chars] + "/" * bool(entropy_chars)
    orphan = f"{PREFIX}{spread}{folder}/{'7':0>20}-{uuid_to_text(LEAKED_ID)}.log"
    client.put_object(Bucket=bucket, Key=orphan, Body=b"leaked")

    code, found = audit("--deep", "tides")
    counts = {kind: count for kind, count in found["summary"]["findings"].items() if count}
    assert (code, counts) == (2, {"missing": 1, "corrupt": 1, "orphan": 1})
    before = set(s3.keys(bucket))

    def deleted(copy_max_ms: int) -> list[Any]:
        found = audit("--delete-orphans", "--yes", "--copy-max-ms", str(copy_max_ms))[1]
        return list(found["deletion"]["deleted"])

    assert deleted(3_600_000) == []
    assert set(s3.keys(bucket)) == before

    (gone,) = until(lambda: deleted(1), "the orphan is old enough by the store's clock")
    assert [PREFIX + key for key in gone["keys"]] == [orphan]
    assert before - set(s3.keys(bucket)) == {orphan}
