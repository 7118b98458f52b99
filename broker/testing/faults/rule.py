"""A fault of requests: which ones it hits, and its effect on them. Values, checked once.

A fault fails a request (`error`), makes it wait (`delay_ms`) or cuts its connection (`cut`). A
delay combines with either of the others. An error and a cut exclude each other, since after a cut
there is no answer that could hold an error.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from broker.testing.faults.shapes import shape_of
from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.wire.api_keys import ApiKey

DELAY_MS_MAX: Final = 3_600_000
COUNT_MAX: Final = 1_000_000_000


class FaultError(TidemarkError):
    """An invalid fault: the message has the field, its value and the allowed ones."""


class Cut(StrEnum):
    """When the connection is cut.

    Both look alike to the client: it must find out by itself whether its request was served.
    """

    BEFORE_SERVING = "before_serving"
    """The request is not served."""
    AFTER_SERVING = "after_serving"
    """The request is served and its answer is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFault:
    """A fault of requests.

    Attributes:
        api: Number of the API, None for all.
        topic: Only requests that name this topic are hit. An error goes into the slots of this
            topic, and the rest of the request is served.
        partition: Of `topic`, likewise.
        client_id: Only requests with this client id are hit.
        error: The code of the answer; the part that it stands for is not served.
        delay_ms: The request waits this long first, and so do later ones on its connection.
        cut: Point at which the connection ends without an answer, if it does.
        count: Hits until the fault is over, None: until it is removed.
        probability: Of a hit, above 0 and at most 1.
        seed: Of the rng that decides where `probability` is below 1.
    """

    api: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    error: ErrorCode | None = None
    delay_ms: int = 0
    cut: Cut | None = None
    count: int | None = None
    probability: float = 1.0
    seed: int = 0

    def described(self) -> dict[str, Any]:
        """The fault in the form that `parse` reads, without fields at their default."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        default = RequestFault(error=ErrorCode.NONE)
        said = {name: value for name, value in said.items() if value != getattr(default, name)}
        if self.api is not None:
            said["api"] = api_name(self.api)
        said.pop("error", None)
        if self.error is not None:
            said["error"] = self.error.name
        return said


def api_name(api_key: int) -> str:
    """Kafka's name of an API: Produce, ListOffsets."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def parse(said: Mapping[str, Any], served: Collection[int]) -> RequestFault:
    """Read a fault in the form of a command.

    Args:
        said: Fields of `RequestFault` by name: `api` as Kafka's name (Produce, LIST_OFFSETS) or its
            number, `error` as Kafka's name or its number.
        served: Numbers of the APIs that this broker serves.

    Raises:
        FaultError: A field is unknown or wrong, or the fields contradict each other.
    """
    known = {one.name for one in fields(RequestFault)}
    unknown = sorted(set(said) - known)
    if unknown:
        raise FaultError(f"{unknown[0]}: no such field; there are: {', '.join(sorted(known))}")
    cut = text_of(said, "cut")
    fault = RequestFault(
        api=_api(said.get("api"), served),
        topic=text_of(said, "topic"),
        partition=whole_of(said, "partition", 0, 2**31 - 1),
        client_id=text_of(said, "client_id"),
        error=_error(said.get("error")),
        delay_ms=whole_of(said, "delay_ms", 0, DELAY_MS_MAX) or 0,
        cut=None if cut is None else _cut(cut),
        count=whole_of(said, "count", 1, COUNT_MAX),
        probability=probability_of(said),
        seed=whole_of(said, "seed", -(2**63), 2**63 - 1) or 0,
    )
    _check(fault)
    return fault


def _check(fault: RequestFault) -> None:
    """Refuse a fault that would never hit, or that could not be answered."""
    if fault.error is None and fault.cut is None and not fault.delay_ms:
        raise FaultError("a fault needs error, delay_ms or cut: this one does nothing")
    if fault.error is not None and fault.cut is not None:
        raise FaultError("error and cut exclude each other: after a cut there is no answer")
    if fault.error is not None and fault.api is None:
        raise FaultError("error needs api: no code is known to all of them")
    if fault.partition is not None and fault.topic is None:
        raise FaultError("partition needs topic")
    if fault.topic is not None and fault.api is not None:
        names = shape_of(fault.api).names
        if "topic" not in names:
            raise FaultError(f"topic: requests of {api_name(fault.api)} name no topics")
        if fault.partition is not None and "partition" not in names:
            raise FaultError(f"partition: requests of {api_name(fault.api)} name no partitions")


def _api(said: object, served: Collection[int]) -> int | None:
    if said is None:
        return None
    names = {api_name(key).lower(): key for key in served}
    if isinstance(said, str):
        key = names.get(said.replace("_", "").lower())
        if key is not None:
            return key
    elif isinstance(said, int) and not isinstance(said, bool) and said in served:
        return said
    allowed = ", ".join(api_name(key) for key in sorted(served))
    raise FaultError(f"api={said!r}: not served here; served are {allowed}")


def _error(said: object) -> ErrorCode | None:
    if said is None:
        return None
    found: ErrorCode | None = None
    if isinstance(said, str):
        found = ErrorCode.__members__.get(said.upper())
    elif isinstance(said, int) and not isinstance(said, bool):
        found = next((code for code in ErrorCode if code == said), None)
    if found is None or found is ErrorCode.NONE:
        raise FaultError(
            f"error={said!r}: allowed is the name or the number of one of Kafka's errors, such as"
            " NOT_LEADER_OR_FOLLOWER"
        )
    return found


def _cut(said: str) -> Cut:
    try:
        return Cut(said)
    except ValueError:
        raise FaultError(f"cut={said!r}: allowed are {', '.join(Cut)}") from None


def text_of(said: Mapping[str, Any], name: str) -> str | None:
    """A field that is a text, None where it is absent.

    Raises:
        FaultError: It is something else, or empty.
    """
    value = said.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise FaultError(f"{name}={value!r}: allowed is a text that is not empty")


def whole_of(said: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    """A field that is a whole number from `low` to `high`, both inclusive; None where it is absent.

    Raises:
        FaultError: It is something else.
    """
    value = said.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise FaultError(f"{name}={value!r}: allowed is a whole number from {low} to {high}")
    return value


def probability_of(said: Mapping[str, Any]) -> float:
    """The field `probability`, 1 where it is absent.

    Raises:
        FaultError: It is no number above 0 and at most 1.
    """
    value = said.get("probability")
    if value is None:
        return 1.0
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise FaultError(f"probability={value!r}: allowed is a number above 0 and at most 1")
    return float(value)
