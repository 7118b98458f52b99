"""The faults that other tests lean on are really seen by an S3 client, and nothing else is."""

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from crc32c import crc32c

from tests.support.brokers.process import until
from tests.support.stores.s3 import CREDENTIALS, REGION, S3Endpoint
from tests.support.stores.s3_faults import Fault, FaultPlan, Kind, Rule
from tests.support.stores.s3_proxy import S3Proxy

BODY = bytes(range(256)) * 512
PART = b"p" * (5 << 20)


@pytest.fixture(scope="module")
def proxy(s3: S3Endpoint) -> Iterator[S3Proxy]:
    with S3Proxy(s3.url, seed=1, pause_s=0.1) as made:
        yield made


@pytest.fixture
def bucket(s3: S3Endpoint, proxy: S3Proxy) -> Iterator[str]:
    yield s3.new_bucket()
    proxy.calm()


def client_of(url: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(
            retries={"total_max_attempts": 1}, read_timeout=1, s3={"addressing_style": "path"}
        ),
    )


@pytest.fixture
def client(proxy: S3Proxy) -> Any:
    return client_of(proxy.url)


def multipart(client: Any, bucket: str, key: str, parts: int = 2) -> None:
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    named = {"Bucket": bucket, "Key": key, "UploadId": upload}
    done = [
        {
            "PartNumber": number,
            "ETag": client.upload_part(**named, PartNumber=number, Body=PART)["ETag"],
        }
        for number in range(1, parts + 1)
    ]
    client.complete_multipart_upload(**named, MultipartUpload={"Parts": done})


def test_without_rules_everything_passes_and_is_counted(
    proxy: S3Proxy, client: Any, bucket: str
) -> None:
    proxy.plan.requests.clear()
    client.put_object(Bucket=bucket, Key="a b/ü", Body=BODY)
    assert client.get_object(Bucket=bucket, Key="a b/ü")["Body"].read() == BODY
    part = client.get_object(Bucket=bucket, Key="a b/ü", Range="bytes=5-9")
    assert part["Body"].read() == BODY[5:10]
    assert client.head_object(Bucket=bucket, Key="a b/ü")["ContentLength"] == len(BODY)
    multipart(client, bucket, "large")
    client.get_object(Bucket=bucket, Key="large")["Body"].close()
    unfinished = client.create_multipart_upload(Bucket=bucket, Key="never")["UploadId"]
    assert len(client.list_multipart_uploads(Bucket=bucket)["Uploads"]) == 1
    client.abort_multipart_upload(Bucket=bucket, Key="never", UploadId=unfinished)
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 2
    client.delete_object(Bucket=bucket, Key="a b/ü")
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "large"}]})
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert proxy.plan.requests == {
        Kind.PUT_OBJECT: 1,
        Kind.GET_OBJECT: 3,
        Kind.HEAD_OBJECT: 1,
        Kind.CREATE_UPLOAD: 2,
        Kind.UPLOAD_PART: 2,
        Kind.COMPLETE_UPLOAD: 1,
        Kind.ABORT_UPLOAD: 1,
        Kind.LIST_UPLOADS: 1,
        Kind.LIST_OBJECTS: 2,
        Kind.DELETE_OBJECT: 1,
        Kind.DELETE_OBJECTS: 1,
    }


def test_connections_are_kept(proxy: S3Proxy, client: Any, bucket: str) -> None:
    before = proxy.connections
    for number in range(5):
        client.put_object(Bucket=bucket, Key=f"{number}", Body=b"")
    assert proxy.connections == before + 1


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [(Fault.ERROR_500, "InternalError", 500), (Fault.SLOW_DOWN, "SlowDown", 503)],
)
def test_error_answers_are_those_of_s3(
    proxy: S3Proxy, client: Any, s3: S3Endpoint, bucket: str, fault: Fault, code: str, status: int
) -> None:
    proxy.inject(Rule(fault, times=1))
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket=bucket, Key="k", Body=BODY)
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert s3.keys(bucket) == {}
    client.put_object(Bucket=bucket, Key="k", Body=BODY)


def test_errors_come_with_status_200_too(
    proxy: S3Proxy, client: Any, s3: S3Endpoint, bucket: str
) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=BODY)
    proxy.inject(Rule(Fault.ERROR_IN_200))
    answer = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k"}]})
    assert answer["Errors"][0]["Key"] == "k"
    with pytest.raises(ClientError, match="InternalError"):
        multipart(client, bucket, "large", parts=1)
    assert s3.keys(bucket) == {"k": len(BODY)}


@pytest.mark.parametrize("fault", [Fault.RESET_MID_BODY, Fault.CUT_BODY])
def test_an_answer_ends_too_early(proxy: S3Proxy, client: Any, bucket: str, fault: Fault) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=BODY)
    proxy.inject(Rule(fault))
    body = client.get_object(Bucket=bucket, Key="k")["Body"]
    with pytest.raises((ResponseStreamingError, IncompleteReadError)):
        body.read()


def test_an_answer_is_shorter_than_asked_for_and_says_so(
    proxy: S3Proxy, client: Any, bucket: str
) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=BODY)
    proxy.inject(Rule(Fault.SHORT_BODY))
    answer = client.get_object(Bucket=bucket, Key="k", Range="bytes=0-99")
    assert answer["ContentLength"] == 50
    assert answer["Body"].read() == BODY[:50]


def test_a_byte_of_an_answer_is_another(proxy: S3Proxy, client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=BODY)
    proxy.inject(Rule(Fault.FLIP_ANSWER))
    body = client.get_object(Bucket=bucket, Key="k", Range="bytes=0-99")["Body"].read()
    assert [at for at in range(100) if body[at] != BODY[at]] == [50]


def test_a_byte_of_a_request_is_another_and_the_store_notices(
    proxy: S3Proxy, client: Any, s3: S3Endpoint, bucket: str
) -> None:
    proxy.inject(Rule(Fault.FLIP_REQUEST))
    checksum = base64.b64encode(crc32c(BODY).to_bytes(4, "big")).decode()
    with pytest.raises(ClientError, match="BadDigest"):
        client.put_object(Bucket=bucket, Key="k", Body=BODY, ChecksumCRC32C=checksum)
    assert s3.keys(bucket) == {}


def test_a_reset_in_the_middle_of_an_upload_leaves_nothing(
    proxy: S3Proxy, client: Any, s3: S3Endpoint, bucket: str
) -> None:
    proxy.inject(Rule(Fault.RESET_MID_BODY))
    with pytest.raises(BotoCoreError):
        client.put_object(Bucket=bucket, Key="k", Body=PART)
    assert s3.keys(bucket) == {}


def _put(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=BODY)


def _delete(client: Any, bucket: str) -> None:
    client.delete_object(Bucket=bucket, Key="old")


def _delete_many(client: Any, bucket: str) -> None:
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "old"}]})


def _complete(client: Any, bucket: str) -> None:
    multipart(client, bucket, "k", parts=1)


@pytest.mark.parametrize(
    ("call", "kind", "left"),
    [
        (_put, Kind.PUT_OBJECT, {"old", "k"}),
        (_delete, Kind.DELETE_OBJECT, set()),
        (_delete_many, Kind.DELETE_OBJECTS, set()),
        (_complete, Kind.COMPLETE_UPLOAD, {"old", "k"}),
    ],
)
def test_the_store_does_it_and_the_answer_is_lost(
    proxy: S3Proxy,
    client: Any,
    s3: S3Endpoint,
    bucket: str,
    call: Callable[[Any, str], None],
    kind: Kind,
    left: set[str],
) -> None:
    client.put_object(Bucket=bucket, Key="old", Body=b"")
    proxy.inject(Rule(Fault.LOST_ANSWER, kinds=frozenset({kind})))
    with pytest.raises(ConnectionClosedError):
        call(client, bucket)
    assert set(s3.keys(bucket)) == left


def test_uploads_stay_open_where_their_answer_is_lost(
    proxy: S3Proxy, client: Any, bucket: str
) -> None:
    proxy.inject(Rule(Fault.LOST_ANSWER, kinds=frozenset({Kind.CREATE_UPLOAD})))
    with pytest.raises(ConnectionClosedError):
        multipart(client, bucket, "k", parts=1)
    assert len(client.list_multipart_uploads(Bucket=bucket)["Uploads"]) == 1


def test_a_put_lands_after_its_client_has_given_up(
    proxy: S3Proxy, client: Any, s3: S3Endpoint, bucket: str
) -> None:
    proxy.inject(Rule(Fault.LATE))
    with pytest.raises(ReadTimeoutError):
        client.put_object(Bucket=bucket, Key="k", Body=BODY)
    client.close()
    waiter = s3.client().get_waiter("object_exists")
    waiter.wait(Bucket=bucket, Key="k", WaiterConfig={"Delay": 1, "MaxAttempts": 20})


def test_the_first_byte_is_slow(proxy: S3Proxy, client: Any, bucket: str) -> None:
    proxy.inject(Rule(Fault.SLOW_FIRST_BYTE))
    client.put_object(Bucket=bucket, Key="k", Body=BODY)
    assert proxy.plan.struck(Fault.SLOW_FIRST_BYTE) == 1


def test_a_hung_request_ends_by_the_clients_deadline_or_by_release(
    proxy: S3Proxy, client: Any, s3: S3Endpoint, bucket: str
) -> None:
    struck = proxy.plan.struck(Fault.HANG)
    proxy.inject(Rule(Fault.HANG))
    with pytest.raises(ReadTimeoutError):
        client.put_object(Bucket=bucket, Key="k", Body=BODY)
    patient = client_of(proxy.url)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(patient.put_object, Bucket=bucket, Key="second", Body=BODY)
        until(lambda: proxy.plan.struck(Fault.HANG) == struck + 2, "the second one hangs")
        proxy.calm()
        sent.result(20)
    assert set(s3.keys(bucket)) == {"second"}


def test_rules_pick_by_kind_key_and_number(proxy: S3Proxy, client: Any, bucket: str) -> None:
    rule = Rule(Fault.ERROR_500, kinds=frozenset({Kind.PUT_OBJECT}), key_suffix=".manifest", nth=2)
    proxy.inject(rule)
    failed = []
    for number, suffix in enumerate(["log", "manifest", "log", "manifest", "manifest"]):
        try:
            client.put_object(Bucket=bucket, Key=f"{number}.{suffix}", Body=b"")
        except ClientError:
            failed.append(number)
    assert failed == [3]
    client.get_object(Bucket=bucket, Key="1.manifest")


def test_a_seed_replays_a_plan() -> None:
    def strikes(seed: int) -> list[bool]:
        plan = FaultPlan(seed)
        plan.replace([Rule(Fault.ERROR_500, probability=0.3)])
        return [plan.next_fault(Kind.GET_OBJECT, f"{n}") is not None for n in range(200)]

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)
    assert 30 < sum(strikes(1)) < 90
