"""What surrounds a message on the link."""

import msgspec

from rlm.link.messages import AnyMessage


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way.

    Attributes:
        kind: 0 request, 1 answer, 2 one-way.
        id: of the request; an answer repeats it. Each side counts its own requests.
        descriptors: how many descriptors travel beside it.
    """

    kind: int
    id: int
    descriptors: int
    body: AnyMessage


REQUEST, ANSWER, ONE_WAY = 0, 1, 2
