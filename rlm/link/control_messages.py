"""Messages for tests: what the control listener of a broker asks its tier to do.

None is sent unless a command has come; see `broker.control`.
"""

from typing import TypeAlias

import msgspec

from rsm_plugins.store_faults import StoreCall, StoreFault


class RunPasses(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Copy and expire now, without waiting for the interval.

    Answer: Ack once each partition that is ready has ended a copy pass and an expiration pass that
    began after this message came.
    """


class SetStoreFaults(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Exactly these faults of the store are in force. Answer: Ack, not taken without a wrapper.

    Of a fault that hits so often and no more, `count` is what was left of it.
    """

    faults: list[StoreFault]


class StoreFaultHit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One-way: a fault of the store hits a call, which feels it after this was sent."""

    fault_id: int
    call: StoreCall
    topic: str


ControlMessage: TypeAlias = RunPasses | SetStoreFaults | StoreFaultHit
"""All of them: a union."""
