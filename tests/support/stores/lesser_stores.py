"""The table of stores that speak only a part of S3: what each refuses, and what then holds.

A line either keeps every promise of the contract, with the settings that it names, or breaks those
that it names, with words of the store or a remedy. Where a line comes from a store that is known
for it, its note says which.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from rsm_plugins.contract import AllPromises
from tests.support.stores.answering_server import Answer, error
from tests.support.stores.played_s3 import (
    Call,
    PlayedS3,
    Refuses,
    etag_of,
    keys_of_batch,
    takes_all,
)
from tests.support.stores.s3_faults import Kind

LARGE_BYTES = 12 << 20
"""Size of the large segments of the contract: above the part size of 5 MiB that every line has."""
SMALL_BYTES_MAX = 1 << 20

NO_CHECKSUMS = {"checksum": "none"}
_BURST = 2
_BURST_EVERY = 60


@dataclass(frozen=True)
class Line:
    """One store.

    Attributes:
        note: what it lacks; whose it is.
        refuses: makes what the store answers instead of doing what was asked for.
        keeps: what of a body it keeps; None: no object.
        etag: of a body; empty: the store gives none.
        ignores: headers and parameters that it does not see.
        settings: without which its promises are not kept.
        is_virtual_host: the bucket is a part of the host name.
        breaks: promises that no setting makes it keep. Empty: all are kept.
        says: the reason of each broken promise holds this.
    """

    note: str
    refuses: Callable[[], Refuses] = lambda: takes_all
    keeps: Callable[[bytes], bytes | None] = lambda body: body
    etag: Callable[[bytes], str] = etag_of
    ignores: frozenset[str] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    is_virtual_host: bool = False
    breaks: Sequence[Callable[..., None]] = ()
    says: str = ""

    def play(self) -> PlayedS3:
        """Start the store."""
        return PlayedS3(self.refuses(), keeps=self.keeps, etag=self.etag, ignores=self.ignores)


def refusing(kind: Kind, answer: Answer) -> Callable[[], Refuses]:
    """A store that has no such operation, and how it words that."""
    return lambda: lambda call: answer if call.kind is kind else None


def has_checksum(call: Call) -> bool:
    """Whether a request carries a checksum, or asks for one, in whatever way S3 knows."""
    return any(
        name.startswith(("x-amz-checksum", "x-amz-sdk-checksum", "content-md5"))
        for name in call.headers
    ) or has_trailer(call)


def has_trailer(call: Call) -> bool:
    """Whether the body is chunked by S3's own rules, as newer libraries send it."""
    return (
        "x-amz-trailer" in call.headers
        or "aws-chunked" in call.headers.get("content-encoding", "")
        or "STREAMING" in call.headers.get("x-amz-content-sha256", "")
    )


def _checksums(call: Call) -> Answer | None:
    if not has_checksum(call):
        return None
    return error(400, "InvalidArgument", "Unsupported header received for this API call.")


def _checksums_of_whole_uploads(call: Call) -> Answer | None:
    if call.headers.get("x-amz-checksum-type") != "FULL_OBJECT":
        return None
    return error(501, "NotImplemented", "x-amz-checksum-type FULL_OBJECT with CRC32C")


def _trailers(call: Call) -> Answer | None:
    return error(400, "XAmzContentSHA256Mismatch") if has_trailer(call) else None


def _batches_per_key(call: Call) -> Answer | None:
    if call.kind is not Kind.DELETE_OBJECTS:
        return None
    failed = "".join(
        f"<Error><Key>{key}</Key><Code>NotImplemented</Code></Error>" for key in keys_of_batch(call)
    )
    return Answer(200, f"<DeleteResult>{failed}</DeleteResult>".encode())


def _batches_without_md5(call: Call) -> Answer | None:
    if call.kind is not Kind.DELETE_OBJECTS or "content-md5" in call.headers:
        return None
    return error(400, "MissingContentMD5", "Missing required header for this request: Content-MD5")


def _conditions(call: Call) -> Answer | None:
    return error(501, "NotImplemented") if "if-none-match" in call.headers else None


def _all_but_plain_calls(call: Call) -> Answer | None:
    known = {
        Kind.PUT_OBJECT,
        Kind.GET_OBJECT,
        Kind.HEAD_OBJECT,
        Kind.DELETE_OBJECT,
        Kind.LIST_OBJECTS_V1,
    }
    return None if call.kind in known else error(501, "NotImplemented")


def _slow_down_in_bursts() -> Refuses:
    numbers = count()

    def refuses(_: Call) -> Answer | None:
        in_burst = (next(numbers) + _BURST_EVERY // 2) % _BURST_EVERY < _BURST
        return error(503, "SlowDown", "Please reduce your request rate.") if in_burst else None

    return refuses


def _large_objects(call: Call) -> Answer | None:
    if len(call.body) > SMALL_BYTES_MAX:
        return error(400, "EntityTooLarge", "Your proposed upload is too large")
    return None


def _half(body: bytes) -> bytes:
    return body[: len(body) // 2]


_READS = (
    AllPromises.test_a_claim_is_read_as_it_was_last_written,
    AllPromises.test_a_copied_segment_reads_back_byte_for_byte,
    AllPromises.test_a_large_segment_reads_back_byte_for_byte,
)
_LARGE = (
    AllPromises.test_a_large_segment_reads_back_byte_for_byte,
    AllPromises.test_a_large_half_copy_is_not_readable,
    AllPromises.test_large_indexes_read_back,
    AllPromises.test_ranges_of_a_large_segment_are_exact,
    AllPromises.test_closing_with_a_stream_open_does_not_hang,
    AllPromises.test_a_stream_is_read_in_pieces_of_any_size,
    AllPromises.test_a_stream_may_be_closed_before_its_end,
    AllPromises.test_many_readers_of_one_segment,
)

LINES: Mapping[str, Line] = {
    "everything": Line("lacks nothing"),
    "no_batches": Line(
        "no DeleteObjects; Google",
        refusing(Kind.DELETE_OBJECTS, error(400, "InvalidArgument", "Invalid argument.")),
    ),
    "no_batches_per_key": Line(
        "DeleteObjects is answered, and refuses every key", lambda: _batches_per_key
    ),
    "batches_delete_nothing": Line(
        "DeleteObjects is answered with 200, and deletes nothing",
        refusing(Kind.DELETE_OBJECTS, Answer(200, b"<DeleteResult/>")),
    ),
    "batches_want_md5": Line(
        "DeleteObjects wants Content-MD5; older MinIO and others", lambda: _batches_without_md5
    ),
    "no_checksums": Line(
        "no checksum header, asked for or sent; Backblaze B2, older s3proxy",
        lambda: _checksums,
        settings=NO_CHECKSUMS,
    ),
    "no_checksums_of_whole_uploads": Line(
        "no CRC32C of an upload in parts as a whole; Cloudflare R2",
        lambda: _checksums_of_whole_uploads,
        settings=NO_CHECKSUMS,
    ),
    "no_trailers": Line("no bodies in chunks with trailers; Ceph, SeaweedFS", lambda: _trailers),
    "no_conditions": Line("no conditional PUT", lambda: _conditions),
    "ignored_conditions": Line(
        "the condition of a PUT is not seen; older SeaweedFS", ignores=frozenset({"if-none-match"})
    ),
    "no_listings_v2": Line(
        "no ListObjectsV2", refusing(Kind.LIST_OBJECTS, error(501, "NotImplemented"))
    ),
    "ignored_listings_v2": Line(
        "ListObjectsV2 is answered as ListObjects", ignores=frozenset({"list-type"})
    ),
    "no_listings_of_uploads": Line(
        "no ListMultipartUploads",
        refusing(Kind.LIST_UPLOADS, error(400, "InvalidRequest")),
    ),
    "plain_calls_only": Line(
        "501 to all but PUT, GET, HEAD and DELETE of an object and ListObjects",
        lambda: _all_but_plain_calls,
        settings={"upload.part.size.bytes": str(16 << 20)},
    ),
    "slow_down_in_bursts": Line("503 SlowDown in bursts", _slow_down_in_bursts),
    "uppercase_etags": Line("ETags in upper case", etag=lambda body: etag_of(body).upper()),
    "no_etags": Line("no ETags", etag=lambda _: ""),
    "virtual_host": Line(
        "the bucket is named in the host",
        settings={"path.style.access": "false"},
        is_virtual_host=True,
    ),
    "no_large_objects": Line(
        "no object, and no part, of more than a MiB",
        lambda: _large_objects,
        breaks=_LARGE,
        says="EntityTooLarge (400): Your proposed upload is too large; lower"
        " rsm.config.upload.part.size.bytes",
    ),
    "keeps_nothing": Line("200, and nothing is kept", keeps=lambda _: None, breaks=_READS),
    "keeps_half": Line("200, and half of each object is kept", keeps=_half, breaks=_READS),
}
"""By name. Of the last two, which lie, `breaks` holds a few promises of many."""
