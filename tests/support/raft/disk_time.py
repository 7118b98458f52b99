"""How long a simulated replica's disk takes for what it is asked to do."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.raft.sim_node import SimNode

SLOW = 60
"""So many times as long takes what is begun while the disk is slow."""
MENDED_WITHIN_US = 200_000
"""As long as the slowest of sound disks takes."""


class DiskTime:
    """See the module; what is under way ends with the life of its node."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._numbers = 0
        self.forget()

    def forget(self) -> None:
        """The node begins a life."""
        self._under_way: dict[int, tuple[int, Callable[..., None], tuple[Any, ...]]] = {}
        self._log_free_at = 0

    def later(self, carry_out: Callable[..., None], *args: Any) -> None:
        """Do something after the time that quorum-state or a read takes."""
        at = self._node.world.now_us + self._us(self._node.state_is_slow_until)
        self._end(at, carry_out, args)

    def in_order(self, carry_out: Callable[..., None], *args: Any) -> None:
        """Do something to log or snapshots; one is done after the other."""
        now_us = self._node.world.now_us
        self._log_free_at = max(self._log_free_at, now_us) + self._us(self._node.log_is_slow_until)
        self._end(self._log_free_at, carry_out, args)

    def _us(self, slow_until: int) -> int:
        world = self._node.world
        return world.disk_us() * (SLOW if slow_until > world.now_us else 1)

    def _end(self, at: int, carry_out: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._numbers += 1
        self._under_way[self._numbers] = at, carry_out, args
        self._node.world.at_node(at, self._node, self._ends, self._numbers)

    def _ends(self, number: int) -> None:
        if number in self._under_way:  # else it is under another number since `mend`
            _, carry_out, args = self._under_way.pop(number)
            carry_out(*args)

    def mend(self) -> None:
        """Let what is under way end soon, in its order.

        Without that a write that a slow disk began goes on for seconds after the last fault.
        """
        latest = self._node.world.now_us + MENDED_WITHIN_US
        under_way, self._under_way = self._under_way, {}
        self._log_free_at = min(self._log_free_at, latest)
        for at, carry_out, args in under_way.values():
            self._end(min(at, latest), carry_out, args)
