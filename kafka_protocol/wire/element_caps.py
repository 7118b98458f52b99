"""How many elements the arrays of one message may have together.

Honest counts of nested arrays in a frame of 100 MiB make hundreds of millions of objects. Each API
has the cap that its largest sensible request needs, so that a hostile one costs no more memory than
that: the schema of a request names it. What a cap refuses is no message, and ends its connection.

DIFFERS: Kafka has no such caps.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Cap(NamedTuple):
    """A cap and its reason.

    Attributes:
        elements: of all arrays of a request together, nested ones too (inclusive).
        reason: what an honest client asks for at most.
    """

    elements: int
    reason: str


CAPS: Final[Mapping[str, Cap]] = {
    "partitions": Cap(250_000, "100,000 partitions, each of a topic of its own, and some beside"),
    "settings": Cap(250_000, "all settings of some thousand topics"),
    "made": Cap(150_000, "10,000 partitions at 8 chosen brokers each; no more are made at once"),
    "groups": Cap(100_000, "names of all groups or transactions of a cluster"),
    "members": Cap(20_000, "members of one group: each has all the others wait"),
    "rules": Cap(10_000, "rules, quotas or users that a tool sets at once"),
    "few": Cap(1_000, "what one client or node has: assignors, filters, listeners, directories"),
    "quorum": Cap(1_000, "the one partition of the metadata log, and a quorum's voters"),
}
"""By the words that schemas of requests with arrays have at the end of their heads."""

ELEMENTS_MAX: Final = 250_000
"""Of what nodes of the own cluster send (answers) or wrote (records), and of all unknown tagged
fields of a message, which are skipped."""
