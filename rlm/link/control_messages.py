"""Messages for tests: what the control listener of a broker asks its tier to do.

None is sent unless a command has come; see `broker.control`.
"""

from typing import TypeAlias

import msgspec


class RunPasses(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Copy and expire now, without waiting for the interval.

    Answer: Ack once each partition that is ready has ended a copy pass and an expiration pass that
    began after this message came.
    """


ControlMessage: TypeAlias = RunPasses
"""All of them: a union."""
