"""The settings of S3 under `rsm.config.`, and the frozen view of them for the code.

Credentials are not among the settings, so that no secret is in a broker's file. They come from the
library's own chain (environment, shared files, SSO, container and instance roles).

Must not know: boto3, so that the page of settings can be made where it is not installed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rsm_plugins.layout.objects import check_key
from rsm_plugins.settings import PREFIX, Setting, boolean, choice, integer, text

ENTROPY_CHARS_MAX = 8
_UNREADABLE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_PART_BYTES_MIN = 5 << 20
"""S3 refuses smaller parts, except the last one."""

SETTINGS: Sequence[Setting] = (
    text("bucket", "The bucket, which must exist.", allowed="a bucket's name", required=True),
    text("region", "Region of the bucket; not set: as the AWS settings of the environment say."),
    text(
        "endpoint.url",
        "Where S3 answers, for stores that are not AWS; not set: AWS.",
        allowed="http://host:port or https://host:port",
    ),
    text("prefix", "Folder in the bucket for all objects; not set: the bucket's root."),
    integer(
        "prefix.entropy.chars",
        "So many hex digits of a hash of the segment's id are a folder between prefix and topic;"
        " spreads very many requests a second over a store's partitions. Segments written before a"
        " change stay readable; change it while no copy is unfinished.",
        default=0,
        low=0,
        high=ENTROPY_CHARS_MAX,
    ),
    text("profile", "Profile of the shared AWS files; not set: the library's own choice."),
    choice(
        "path.style.access",
        "Bucket in the path of a URL, not in its host name; auto: where endpoint.url is set.",
        ("auto", "true", "false"),
        default="auto",
    ),
    text("tls.ca.file", "PEM file of the authorities to trust; not set: the library's own."),
    boolean("tls.verify", "Check the certificate of the endpoint.", default=True),
    choice(
        "sse",
        "Encryption at rest that is asked for; none: as the bucket is set.",
        ("none", "AES256", "aws:kms", "aws:kms:dsse"),
        default="none",
    ),
    text("sse.kms.key.id", "Key for sse=aws:kms and aws:kms:dsse; not set: the account's own."),
    text(
        "storage.class",
        "Storage class of new objects; not set: the bucket's. It must give bytes at once: GLACIER"
        " and DEEP_ARCHIVE are refused.",
        allowed="a storage class whose objects can be read at once",
    ),
    choice(
        "checksum",
        "CRC32C of parts and objects is sent along, checked by the store and checked again when"
        " the upload is complete; none: for stores that refuse the headers.",
        ("crc32c", "none"),
        default="crc32c",
    ),
    integer(
        "upload.part.size.bytes",
        "Larger objects are uploaded in parts of this size. With upload.concurrency it bounds the"
        " memory of uploads.",
        default=8 << 20,
        low=_PART_BYTES_MIN,
        high=512 << 20,
    ),
    integer(
        "upload.concurrency",
        "Parts and small objects that are uploaded at the same time, over all copies.",
        default=4,
        low=1,
        high=64,
    ),
    integer(
        "max.connections",
        "Connections that are kept open for reuse; how many are in use at once is bounded by the"
        " threads of copying, reading and deleting.",
        default=32,
        low=1,
        high=1_000,
    ),
    integer(
        "connect.timeout.ms",
        "Longest wait for a connection, and for the network to take a block of an upload.",
        default=10_000,
        low=100,
        high=600_000,
    ),
    integer(
        "read.timeout.ms",
        "Longest silence of the store while an answer is awaited or read.",
        default=30_000,
        low=100,
        high=600_000,
    ),
    integer(
        "api.call.timeout.ms",
        "Longest time for one request with its retries; no attempt begins later. A transfer may"
        " take this long for every 8 MiB.",
        default=60_000,
        low=100,
        high=3_600_000,
    ),
    integer(
        "api.call.attempts",
        "Attempts of one request, the first included.",
        default=4,
        low=1,
        high=20,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """The settings, checked against each other.

    Attributes:
        prefix: Empty, or plain parts with a slash at the end.
        path_style: None leaves the choice to the library.
        verify: The argument of boto3: a file of authorities, or False for no check.
        write_params: Parameters of every request that makes an object.
    """

    bucket: str
    region: str | None
    endpoint_url: str | None
    prefix: str
    entropy_chars: int
    profile: str | None
    path_style: bool | None
    verify: bool | str
    write_params: Mapping[str, str]
    has_checksums: bool
    part_bytes: int
    concurrency: int
    connections_max: int
    connect_timeout_s: float
    read_timeout_s: float
    call_timeout_s: float
    attempts: int


def s3_options(values: Mapping[str, Any]) -> S3Options:
    """The frozen view of the parsed values of `SETTINGS`.

    Raises:
        ValueError: A value is wrong, or two exclude each other; the message names them.
    """
    style = values["path.style.access"]
    endpoint_url = _endpoint(values["endpoint.url"])
    verify: bool | str = values["tls.verify"]
    if verify and values["tls.ca.file"]:
        verify = str(values["tls.ca.file"])
    return S3Options(
        bucket=values["bucket"],
        region=values["region"],
        endpoint_url=endpoint_url,
        prefix=_prefix(values["prefix"]),
        entropy_chars=values["prefix.entropy.chars"],
        profile=values["profile"],
        path_style=(endpoint_url is not None or None) if style == "auto" else style == "true",
        verify=verify,
        write_params=_write_params(values),
        has_checksums=values["checksum"] == "crc32c",
        part_bytes=values["upload.part.size.bytes"],
        concurrency=values["upload.concurrency"],
        connections_max=values["max.connections"],
        connect_timeout_s=values["connect.timeout.ms"] / 1000,
        read_timeout_s=values["read.timeout.ms"] / 1000,
        call_timeout_s=values["api.call.timeout.ms"] / 1000,
        attempts=values["api.call.attempts"],
    )


def _endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"{PREFIX}endpoint.url=(hidden): user and password do not belong here; credentials come"
            " from the environment or the shared AWS files"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ValueError(
            f"{PREFIX}endpoint.url={url[:200]}: allowed is http://host:port or https://host:port"
        )
    return url


def _prefix(written: str | None) -> str:
    plain = (written or "").strip("/")
    if not plain:
        return ""
    try:
        return check_key(plain) + "/"
    except ValueError as e:
        raise ValueError(
            f"{PREFIX}prefix={plain[:200]}: allowed are plain names with / between them"
        ) from e


def _write_params(values: Mapping[str, Any]) -> dict[str, str]:
    params = {}
    sse, key_id, storage_class = values["sse"], values["sse.kms.key.id"], values["storage.class"]
    if key_id and not sse.startswith("aws:kms"):
        raise ValueError(
            f"{PREFIX}sse.kms.key.id is set and {PREFIX}sse={sse}: allowed is a key with aws:kms or"
            " aws:kms:dsse"
        )
    if sse != "none":
        params["ServerSideEncryption"] = sse
    if key_id:
        params["SSEKMSKeyId"] = key_id
    if storage_class:
        if storage_class in _UNREADABLE_CLASSES or not re.fullmatch("[A-Z0-9_]+", storage_class):
            raise ValueError(
                f"{PREFIX}storage.class={storage_class[:200]}: allowed is a class whose objects can"
                " be read at once, such as STANDARD_IA or INTELLIGENT_TIERING"
            )
        params["StorageClass"] = storage_class
    return params
