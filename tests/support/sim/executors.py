"""Pools without threads."""

from collections.abc import Mapping

from runtime.executors import InlinePool, Pool


class SimExecutors:
    """One pool under every name: what is submitted runs at once, or when that pool says so.

    Attributes:
        changes: a pool of its own where a test holds it: its work waits for that of the others.
        reads: likewise.
        background: likewise.
    """

    __slots__ = ("_pool", "background", "changes", "reads")

    def __init__(
        self,
        pool: Pool | None = None,
        *,
        changes: Pool | None = None,
        reads: Pool | None = None,
        background: Pool | None = None,
    ) -> None:
        self._pool = pool or InlinePool()
        self.changes = changes or self._pool
        self.reads = reads or self._pool
        self.background = background or self._pool

    @property
    def commit(self) -> Pool:
        """The one pool."""
        return self._pool

    def pool(self, name: str, threads: int) -> Pool:
        """The one pool."""
        return self._pool

    def waiting(self) -> Mapping[str, int]:
        """Nothing is known of the one pool."""
        return {}

    def shutdown(self, *, wait: bool = True) -> None:
        """Shut the pools down."""
        for pool in (self.changes, self.reads, self.background):
            pool.shutdown(wait=wait)
        self._pool.shutdown(wait=wait)
