"""Readiness of a metadata node, for coroutines that wait for it."""

import asyncio
from collections.abc import Callable

from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.replica import MetadataReplica
from metadata_topic.quorum.start.quorum_start import Membership
from metadata_topic.raft.roles import Role


class NodeReadiness:
    """A node is ready once it has caught up and, if it leads, takes decisions."""

    def __init__(self, replica: MetadataReplica) -> None:
        """Begin with a replica that calls `look` after each change."""
        self._replica = replica
        self._waiting: set[asyncio.Future[None]] = set()
        replica.controller.watch(self)

    @property
    def is_ready(self) -> bool:
        """True if the node is ready; a sole voter is ready once it leads."""
        replica = self._replica
        is_sole = replica.opened.plan.membership is Membership.SOLE_VOTER
        if is_sole or replica.driver.core.role is Role.LEADER:
            return replica.controller.is_active
        return self._has_caught_up

    @property
    def _has_caught_up(self) -> bool:
        """True if another node leads, and the image has all records that it reported as committed.

        A node that has resigned still names itself as the leader: it does not have the new one. The
        end of a fetched snapshot is committed, but more may be committed behind it.
        """
        replica, core = self._replica, self._replica.driver.core
        told = core.replica.leader_high_watermark
        committed = max(replica.high_watermark, told)
        return (
            core.leader_id not in (None, core.key.id)
            and told >= 0
            and committed <= replica.applied_end
        )

    async def wait(self, check_open: Callable[[], None]) -> None:
        """Wait until the node is ready.

        Args:
            check_open: Raises once the node will never be ready.
        """
        await self.wait_for(lambda: self.is_ready, check_open)

    async def wait_for(self, holds: Callable[[], bool], check_open: Callable[[], None]) -> None:
        """Wait until `holds` returns True.

        It is called after each image and each change of role.
        """
        while not holds():
            check_open()
            changed = asyncio.get_running_loop().create_future()
            self._waiting.add(changed)
            try:
                await changed
            finally:
                self._waiting.discard(changed)

    def look(self) -> None:
        """Let the waiting coroutines check again after a change."""
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)

    def on_active(self, _image: MetadataImage) -> None:
        """Take the begin of this node's decisions."""
        self.look()

    def on_inactive(self) -> None:
        """Take the end of this node's decisions."""
