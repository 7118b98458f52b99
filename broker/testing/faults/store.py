"""Faults of the store in the broker's book: they act in the tier process, and are counted here.

The tier reports each hit. The faults end with their tier process; the next one gets those that are
not over, each with the rest of its count.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from broker.testing.faults.book import Entry
from broker.testing.faults.rule import (
    COUNT_MAX,
    DELAY_MS_MAX,
    FaultError,
    probability_of,
    text_of,
    whole_of,
)
from rsm_plugins.store_faults import StoreCall, StoreFault, StoreFaultKind

_FIELDS: Final = frozenset(one.name for one in fields(StoreFault)) - {"id"}


def parse_store_fault(said: Mapping[str, Any]) -> StoreFault:
    """Read a fault of the store in the form of a command: fields of `StoreFault` by name.

    Returns:
        The fault, without its number.

    Raises:
        FaultError: A field is unknown or wrong, or the fields contradict each other.
    """
    unknown = sorted(set(said) - _FIELDS)
    if unknown:
        raise FaultError(f"{unknown[0]}: no such field; there are: {', '.join(sorted(_FIELDS))}")
    kinds, calls = list(StoreFaultKind), list(StoreCall)
    kind, call = text_of(said, "kind"), text_of(said, "call")
    if kind not in kinds:
        raise FaultError(f"kind={kind!r}: allowed are {', '.join(kinds)}")
    if call is not None and call not in calls:
        raise FaultError(f"call={call!r}: allowed are {', '.join(calls)}")
    fault = StoreFault(
        id=0,
        kind=StoreFaultKind(kind),
        call=None if call is None else StoreCall(call),
        topic=text_of(said, "topic"),
        delay_ms=whole_of(said, "delay_ms", 0, DELAY_MS_MAX) or 0,
        count=whole_of(said, "count", 1, COUNT_MAX),
        probability=probability_of(said),
        seed=whole_of(said, "seed", -(2**63), 2**63 - 1) or 0,
    )
    if fault.kind is StoreFaultKind.SLOW and not fault.delay_ms:
        raise FaultError("slow needs delay_ms")
    if fault.kind is StoreFaultKind.LOSE_PUT_ANSWER and fault.call not in (None, StoreCall.COPY):
        raise FaultError("call: only copy puts anything")
    return fault


def described(fault: StoreFault) -> dict[str, Any]:
    """The fault in the form that `parse_store_fault` reads, without fields at their default."""
    default = StoreFault(id=0, kind=fault.kind)
    said = {name: getattr(fault, name) for name in sorted(_FIELDS)}
    kept = {name: value for name, value in said.items() if value != getattr(default, name)}
    return {"kind": fault.kind.value, **kept}


def for_tier(entry: Entry) -> StoreFault:
    """The fault for a tier, with the rest of its count."""
    fault: StoreFault = entry.fault
    left = None if fault.count is None else fault.count - entry.hits
    return StoreFault(
        id=entry.id,
        kind=fault.kind,
        call=fault.call,
        topic=fault.topic,
        delay_ms=fault.delay_ms,
        count=left,
        probability=fault.probability,
        seed=fault.seed,
    )
