"""When the passes of the remover of deleted topics run: one at a time, and none unasked."""

import logging
from collections.abc import Callable

from rlm.plugins import Plugins
from rlm.workers import EXPIRATION_POOL, Workers

log = logging.getLogger(__name__)


class RemoverPasses:
    """Runs the passes in a pool, where the metadata manager needs a remover.

    Belongs to the tier's thread. While a pass runs, a wish for another one is kept. A pass that is
    given up, as a call of the storage plugin hangs, makes way for the next one.
    """

    def __init__(self, plugins: Plugins, workers: Workers, may_write: Callable[[], bool]) -> None:
        """Nothing runs before `wake`; `may_write`: whether the store may be written to."""
        self._plugins, self._workers, self._may_write = plugins, workers, may_write
        self._runs = self._again = False
        self._number = 0

    def wake(self) -> None:
        """Begin a pass, now or when the present one ends."""
        if self._plugins.remove_deleted is None or not self._may_write():
            return
        if self._runs:
            self._again = True
            return
        self._runs, self._again = True, False
        self._number += 1
        number, remove_deleted = self._number, self._plugins.remove_deleted

        def given_up() -> None:
            """A call hangs: this pass will do nothing more, the next one is for other topics."""
            if number == self._number:
                self._runs = False
                self.wake()

        def done(_: object, error: BaseException | None) -> None:
            if error is not None:
                log.warning("removing deleted topics failed and is tried again: %s", error)
            if number != self._number:
                return
            self._runs = False
            if self._again:
                self.wake()

        self._workers.run(EXPIRATION_POOL, lambda: remove_deleted(given_up), done)
