"""What can go wrong between a tier and its store, and when: faults, rules, and a seeded plan.

Pure: `stores/s3_proxy.py` does what the plan says. A plan is replayed by its seed: whether the
nth request of a kind meets a probable fault depends on seed, rule, kind and n alone, not on what
else is under way.
"""

import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from urllib.parse import parse_qs, unquote, urlsplit


class Fault(Enum):
    """One way to fail. "Applied" says whether the store did what was asked for."""

    ERROR_500 = "500 InternalError; not applied"
    SLOW_DOWN = "503 SlowDown; not applied"
    ERROR_IN_200 = "200 with an error in its body, as S3 may say it; not applied"
    RESET_MID_BODY = "connection reset in the middle of the body that is under way; not applied"
    CUT_BODY = "answer ends before the announced length; applied"
    SHORT_BODY = "answer announces and has fewer bytes than were asked for; applied"
    FLIP_ANSWER = "one byte of the answer's body is another; applied"
    FLIP_REQUEST = "one byte of the request's body is another"
    LOST_ANSWER = "connection closed after the store has answered; applied"
    LATE = "applied only after the client has gone away"
    SLOW_FIRST_BYTE = "answer comes after a pause; applied"
    HANG = "nothing happens until released; not applied"


class Kind(Enum):
    """S3's operations, as far as a storage plugin uses them."""

    PUT_OBJECT = "PutObject"
    GET_OBJECT = "GetObject"
    HEAD_OBJECT = "HeadObject"
    DELETE_OBJECT = "DeleteObject"
    DELETE_OBJECTS = "DeleteObjects"
    CREATE_UPLOAD = "CreateMultipartUpload"
    UPLOAD_PART = "UploadPart"
    COMPLETE_UPLOAD = "CompleteMultipartUpload"
    ABORT_UPLOAD = "AbortMultipartUpload"
    LIST_OBJECTS = "ListObjectsV2"
    LIST_OBJECTS_V1 = "ListObjects"
    LIST_UPLOADS = "ListMultipartUploads"
    LIST_PARTS = "ListParts"
    OTHER = "other"


WRITES = frozenset(
    {Kind.PUT_OBJECT, Kind.CREATE_UPLOAD, Kind.UPLOAD_PART, Kind.COMPLETE_UPLOAD}
)  # what copying does
DELETES = frozenset({Kind.DELETE_OBJECT, Kind.DELETE_OBJECTS, Kind.ABORT_UPLOAD})
READS = frozenset({Kind.GET_OBJECT, Kind.HEAD_OBJECT})
_WITH_BODY = frozenset({Kind.PUT_OBJECT, Kind.UPLOAD_PART})
_SUITS = {
    Fault.ERROR_IN_200: frozenset({Kind.COMPLETE_UPLOAD, Kind.DELETE_OBJECTS}),
    Fault.RESET_MID_BODY: _WITH_BODY | {Kind.GET_OBJECT},
    Fault.CUT_BODY: frozenset({Kind.GET_OBJECT}),
    Fault.SHORT_BODY: frozenset({Kind.GET_OBJECT}),
    Fault.FLIP_ANSWER: frozenset({Kind.GET_OBJECT}),
    Fault.FLIP_REQUEST: _WITH_BODY,
}
"""Where a fault makes sense; others suit every kind."""

_QUERIES = (
    ("POST", "uploads", Kind.CREATE_UPLOAD),
    ("GET", "uploads", Kind.LIST_UPLOADS),
    ("PUT", "uploadId", Kind.UPLOAD_PART),
    ("POST", "uploadId", Kind.COMPLETE_UPLOAD),
    ("DELETE", "uploadId", Kind.ABORT_UPLOAD),
    ("GET", "uploadId", Kind.LIST_PARTS),
    ("POST", "delete", Kind.DELETE_OBJECTS),
    ("GET", "list-type", Kind.LIST_OBJECTS),
)
_PLAIN = {
    "PUT": Kind.PUT_OBJECT,
    "GET": Kind.GET_OBJECT,
    "HEAD": Kind.HEAD_OBJECT,
    "DELETE": Kind.DELETE_OBJECT,
}


def what_is_asked(method: str, target: str) -> tuple[Kind, str]:
    """The operation and the key (empty where the bucket is meant) of a path-style request."""
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    key = unquote(url.path).lstrip("/").partition("/")[2]
    for wanted, name, kind in _QUERIES:
        if method == wanted and name in query:
            return kind, key
    if not key:
        return (Kind.LIST_OBJECTS_V1 if method == "GET" else Kind.OTHER), key
    return _PLAIN.get(method, Kind.OTHER), key


@dataclass(frozen=True, slots=True)
class Rule:
    """When a fault strikes.

    Attributes:
        fault: which.
        kinds: operations that may meet it; empty: all that it suits.
        key_suffix: of the keys that may meet it.
        probability: for each request that matches so far.
        nth: only the nth that matches, counted from 1; 0: any.
        times: at most so often; 0: no bound.
    """

    fault: Fault
    kinds: frozenset[Kind] = frozenset()
    key_suffix: str = ""
    probability: float = 1.0
    nth: int = 0
    times: int = 0

    def matches(self, kind: Kind, key: str) -> bool:
        suits = _SUITS.get(self.fault)
        return (
            kind is not Kind.OTHER
            and (not self.kinds or kind in self.kinds)
            and (suits is None or kind in suits)
            and key.endswith(self.key_suffix)
        )


@dataclass
class FaultPlan:
    """Decides for each request which fault it meets, and counts. Called from any thread.

    Attributes:
        requests: how many of each kind have come.
        injected: how often each fault struck each kind.
    """

    seed: int = 0
    requests: Counter[Kind] = field(default_factory=Counter)
    injected: Counter[tuple[Fault, Kind]] = field(default_factory=Counter)
    _rules: Sequence[Rule] = ()
    _matched: Counter[int] = field(default_factory=Counter)
    _struck: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def replace(self, rules: Sequence[Rule]) -> None:
        """Go by these rules from now on; their counts begin at zero."""
        with self._lock:
            self._rules = tuple(rules)
            self._matched.clear()
            self._struck.clear()

    def next_fault(self, kind: Kind, key: str) -> Fault | None:
        """What the request that has come now meets; the first rule that strikes."""
        with self._lock:
            self.requests[kind] += 1
            for place, rule in enumerate(self._rules):
                if self._strikes(place, rule, kind, key):
                    self._struck[place] += 1
                    self.injected[rule.fault, kind] += 1
                    return rule.fault
        return None

    def _strikes(self, place: int, rule: Rule, kind: Kind, key: str) -> bool:
        if not rule.matches(kind, key):
            return False
        self._matched[place] += 1
        if rule.nth and self._matched[place] != rule.nth:
            return False
        if rule.times and self._struck[place] >= rule.times:
            return False
        rng = Random(f"{self.seed}/{rule.fault.name}/{kind.value}/{self.requests[kind]}")
        return rng.random() < rule.probability

    def injected_so_far(self) -> Counter[tuple[Fault, Kind]]:
        """A copy of `injected`."""
        with self._lock:
            return self.injected.copy()

    def struck(self, fault: Fault) -> int:
        """How often a fault struck, whatever it met."""
        injected = self.injected_so_far()
        return sum(count for (each, _), count in injected.items() if each is fault)

    def __str__(self) -> str:
        with self._lock:
            asked = {kind.value: count for kind, count in self.requests.items()}
            met = {f"{fault.name}/{kind.value}": n for (fault, kind), n in self.injected.items()}
        return f"fault seed={self.seed} requests={asked} injected={met}"


_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>%s</Code><Message>%s</Message>'
    "<RequestId>4442587FB7D0A2F9</RequestId><HostId>faults</HostId></Error>"
)
INTERNAL_ERROR = (_ERROR % ("InternalError", "We encountered an internal error.")).encode()
SLOW_DOWN = (_ERROR % ("SlowDown", "Please reduce your request rate.")).encode()


def failed_deletion(request: bytes) -> bytes:
    """A DeleteObjects answer that says of every key that it was not deleted."""
    keys = re.findall(rb"<Key>(.*?)</Key>", request)
    failed = b"".join(
        b"<Error><Key>%s</Key><Code>InternalError</Code><Message>try again</Message></Error>" % key
        for key in keys
    )
    return b'<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult>%s</DeleteResult>' % failed
