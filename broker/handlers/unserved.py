"""Clients that ask for what this broker does not serve, named in the log.

Few clients show the text of an error: without this line an operator learns nothing of the reason.
"""

import logging
from typing import Final

from broker.network.registry import RequestContext
from runtime.log_context import escape

log = logging.getLogger(__name__)

TRANSACTIONS: Final = "Transactions", "use a producer without transactional.id"
"""What is not served, and the way out."""
NAMED_MAX: Final = 1_000
"""So many are named; whoever invents client ids must not fill memory or the log."""


class Unserved:
    """Names each client once for each thing that it asks for."""

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()

    def refused(self, context: RequestContext, what: str, way_out: str) -> str:
        """Log that a request was refused, unless that was said of this client.

        Args:
            context: of the request.
            what: as the subject of "are not served", capitalised.
            way_out: what the client's owner can do.

        Returns:
            The same in words for the client.
        """
        key = escape(context.client_id, 100), what
        if key not in self._named and len(self._named) < NAMED_MAX:
            self._named.add(key)
            log.warning(
                "%s are not served, a client asked for them: client_id=%s peer=%s; %s",
                what, key[0], context.peer[0], way_out,
            )  # fmt: skip
            if len(self._named) == NAMED_MAX:
                log.warning("further clients that ask for what is not served are not named")
        return f"{what} are not served by this broker; {way_out}."
