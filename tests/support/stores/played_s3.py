"""A store that speaks S3 over real HTTP, in memory, and lacks what a line of a table says.

It serves what a storage plugin asks for, checks CRC32C where one is sent along, and has one
bucket, by path and by host name. `lesser_stores.py` is the table.
"""

import base64
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import md5
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from crc32c import crc32c

from tests.support.stores.answering_server import Answer, AnsweringServer, Request, error
from tests.support.stores.s3_faults import Kind, what_is_asked

BUCKET = "played"
PAGE_KEYS = 3
"""Keys on a page of a listing: small, so that every longer one has several."""

_CHECKSUM = "x-amz-checksum-crc32c"


@dataclass(frozen=True)
class Call:
    """A request as the store understands it; header names are in lower case."""

    kind: Kind
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


Refuses = Callable[[Call], Answer | None]
"""What a store answers instead of doing what was asked for; None: it does it."""


def takes_all(_: Call) -> Answer | None:
    return None


def etag_of(body: bytes) -> str:
    return f'"{md5(body, usedforsecurity=False).hexdigest()}"'


@dataclass
class _Upload:
    key: str
    parts: dict[int, bytes] = field(default_factory=dict)


class PlayedS3(AnsweringServer):
    """The store.

    Attributes:
        calls: what it was asked, in order, refused or not.
        objects: its bytes by key.
        uploads: which are not finished.
    """

    def __init__(
        self,
        refuses: Refuses = takes_all,
        *,
        keeps: Callable[[bytes], bytes | None] = lambda body: body,
        etag: Callable[[bytes], str] = etag_of,
        ignores: frozenset[str] = frozenset(),
    ) -> None:
        """Make a store that is ready to answer.

        Args:
            refuses: what it answers instead of doing what was asked for.
            keeps: what of a body stays; None: no object.
            etag: of a body; an empty one is not sent.
            ignores: headers and parameters of a query that it does not see.
        """
        self._refuses, self._keeps, self._etag, self._ignores = refuses, keeps, etag, ignores
        self._lock = threading.Lock()
        self._begun = 0
        self.calls: list[Call] = []
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, _Upload] = {}
        super().__init__(self._answer_to)

    def kinds(self) -> list[Kind]:
        return [call.kind for call in self.calls]

    # ------------------------------------------------------------------ inside

    def _answer_to(self, request: Request) -> Answer:
        call = _understood(request, self._ignores)
        with self._lock:
            self.calls.append(call)
            answer = self._refuses(call) or _damaged(call)
            return answer or getattr(self, f"_{call.kind.name.lower()}")(call)

    def _put_object(self, call: Call) -> Answer:
        if call.headers.get("if-none-match") == "*" and call.key in self.objects:
            return error(412, "PreconditionFailed")
        self._keep(call.key, call.body)
        return self._written(call.body)

    def _get_object(self, call: Call) -> Answer:
        body = self.objects.get(call.key)
        if body is None:
            return error(404, "NoSuchKey")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", call.headers.get("range", ""))
        if asked is None:
            return Answer(200, body, self._facts(body, call))
        first, last = int(asked[1]), min(int(asked[2] or len(body)), len(body) - 1)
        if first >= len(body):
            return error(416, "InvalidRange")
        span = {"Content-Range": f"bytes {first}-{last}/{len(body)}"}
        return Answer(206, body[first : last + 1], span)

    def _head_object(self, call: Call) -> Answer:
        body = self.objects.get(call.key)
        if body is None:
            return Answer(404)
        return Answer(200, b"", self._facts(body, call) | {"Content-Length": str(len(body))})

    def _delete_object(self, call: Call) -> Answer:
        self.objects.pop(call.key, None)
        return Answer(204)

    def _delete_objects(self, call: Call) -> Answer:
        keys = keys_of_batch(call)
        for key in keys:
            self.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return Answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _create_upload(self, call: Call) -> Answer:
        self._begun += 1
        name = f"upload-{self._begun}"
        self.uploads[name] = _Upload(call.key)
        return Answer(200, f"<Result><UploadId>{name}</UploadId></Result>".encode())

    def _upload_part(self, call: Call) -> Answer:
        upload = self.uploads.get(call.query["uploadId"])
        if upload is None:
            return error(404, "NoSuchUpload")
        upload.parts[int(call.query["partNumber"])] = call.body
        return self._written(call.body)

    def _complete_upload(self, call: Call) -> Answer:
        upload = self.uploads.get(call.query["uploadId"])
        if upload is None:
            return error(404, "NoSuchUpload")
        listed = re.findall(rb"<Part>.*?</Part>", call.body, re.DOTALL)
        for number, part in enumerate(listed, start=1):
            etag = self._etag(upload.parts.get(number, b"")).encode()
            if f"<PartNumber>{number}<".encode() not in part or etag not in _unescaped(part):
                return error(400, "InvalidPart")
        if len(listed) != len(upload.parts):
            return error(400, "InvalidPart")
        del self.uploads[call.query["uploadId"]]
        whole = b"".join(upload.parts[number] for number in sorted(upload.parts))
        self._keep(upload.key, whole)
        etag_element = f"<ETag>{self._etag(whole)}</ETag>" if self._etag(whole) else ""
        return Answer(200, f"<Result>{etag_element}</Result>".encode())

    def _abort_upload(self, call: Call) -> Answer:
        if self.uploads.pop(call.query["uploadId"], None) is None:
            return error(404, "NoSuchUpload")
        return Answer(204)

    def _list_objects(self, call: Call) -> Answer:
        after = call.query.get("continuation-token", "")
        page, is_more = self._page(call, after)
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if is_more else ""
        return self._listing(page, is_more, token)

    def _list_objects_v1(self, call: Call) -> Answer:
        page, is_more = self._page(call, call.query.get("marker", ""))
        return self._listing(page, is_more, "")

    def _list_uploads(self, call: Call) -> Answer:
        found = "".join(
            f"<Upload><Key>{upload.key}</Key><UploadId>{name}</UploadId></Upload>"
            for name, upload in self.uploads.items()
            if upload.key.startswith(call.query.get("prefix", ""))
        )
        return Answer(200, f"<Result><IsTruncated>false</IsTruncated>{found}</Result>".encode())

    def _list_parts(self, call: Call) -> Answer:
        return error(501, "NotImplemented")

    _other = _list_parts

    def _keep(self, key: str, body: bytes) -> None:
        kept = self._keeps(body)
        if kept is not None:
            self.objects[key] = kept

    def _written(self, body: bytes) -> Answer:
        etag = self._etag(body)
        return Answer(200, b"", {"ETag": etag} if etag else {})

    def _facts(self, body: bytes, call: Call) -> dict[str, str]:
        facts = {"ETag": self._etag(body)} if self._etag(body) else {}
        if "x-amz-checksum-mode" in call.headers:
            facts |= {_CHECKSUM: _crc_text(body), "x-amz-checksum-type": "FULL_OBJECT"}
        return facts

    def _page(self, call: Call, after: str) -> tuple[list[str], bool]:
        prefix = call.query.get("prefix", "")
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return keys[:PAGE_KEYS], len(keys) > PAGE_KEYS

    def _listing(self, keys: list[str], is_more: bool, token: str) -> Answer:
        found = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.objects[key])}</Size>"
            "<LastModified>1970-01-01T00:00:02Z</LastModified></Contents>"
            for key in keys
        )
        more = f"<IsTruncated>{str(is_more).lower()}</IsTruncated>{token}"
        return Answer(200, f"<Result>{more}{found}</Result>".encode())


def keys_of_batch(call: Call) -> list[str]:
    """Which keys a DeleteObjects names."""
    return [key.decode() for key in re.findall(rb"<Key>(.*?)</Key>", call.body)]


def _understood(request: Request, ignores: frozenset[str]) -> Call:
    url = urlsplit(request.target)
    pairs = parse_qsl(url.query, keep_blank_values=True)
    query = {name: value for name, value in pairs if name not in ignores}
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers = {name: value for name, value in headers.items() if name not in ignores}
    host = url.netloc or headers.get("host", "")
    path = f"/{BUCKET}{url.path}" if host.startswith(f"{BUCKET}.") else url.path
    kind, key = what_is_asked(request.method, f"{path}?{urlencode(query)}")
    is_known = unquote(path).split("/")[1] == BUCKET
    return Call(kind if is_known else Kind.OTHER, key, query, headers, request.body)


def _damaged(call: Call) -> Answer | None:
    """BadDigest where a body is not the one of its checksum; of an upload it is the whole's."""
    sent = call.headers.get(_CHECKSUM)
    if sent is None or call.kind not in {Kind.PUT_OBJECT, Kind.UPLOAD_PART}:
        return None
    return None if sent == _crc_text(call.body) else error(400, "BadDigest")


def _crc_text(body: bytes) -> str:
    return base64.b64encode(crc32c(body).to_bytes(4, "big")).decode()


def _unescaped(xml: bytes) -> bytes:
    return xml.replace(b"&quot;", b'"')
