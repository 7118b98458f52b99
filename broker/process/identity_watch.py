"""Checks at the start that no other process is this node, and that its cluster is the controllers'.

Before this node takes part, it asks the controllers, and repeats that in doubt for a few seconds.
Without a leader a controller takes part, and watches until the leader lists it. A node that is only
a broker waits for a leader, without which it has nothing to fetch. The leader's log must have the
batches that this broker noted as committed (`node.committed_mark`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Final

from broker.node.committed_mark import Comparison, Marks, remedy
from broker.node.identity_check import Doubts, Identity, LeaderView, other_cluster, other_voters
from broker.process.controller_questions import ControllerAnswer, ControllerQuestions
from metadata_topic.quorum.errors import QuorumConfigError
from metadata_topic.quorum.metadata_loader import CommittedBatch
from metadata_topic.raft.messages import Node
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.scheduler import pause

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 1_000
"""A controller that does not answer delays the start by this long."""
RECENT_MS: Final = 1_000
"""A live replica fetches from its leader every half second."""
EVERY_MS: Final = 300
LATER_MS: Final = 1_000
POLLS_MAX: Final = 20
ADDRESSES_MAX: Final = 32


class IdentityWatch:
    """The check of one start; use it from the event loop's thread only."""

    def __init__(
        self,
        me: Identity,
        known: tuple[Node, ...],
        needed: int,
        ports: Ports,
        *,
        voters: Collection[int] = (),
    ) -> None:
        """Take the parts; nothing is sent yet.

        Args:
            me: This node.
            known: Addresses of controllers, this one included where it is named.
            needed: So many of another cluster prove that this node is in the wrong one.
            ports: Clock, timers and connections.
            voters: Ids of `controller.quorum.voters`.
        """
        self._voters = voters
        self._me, self._needed = me, needed
        self._known = dict.fromkeys(known)
        self._ports = ports
        self._questions = ControllerQuestions(me.key.id, ports, TIMEOUT_MS)
        self._doubts = Doubts(me, RECENT_MS)
        self._clusters: dict[str, str] = {}
        self._leader: tuple[Node, LeaderView] | None = None

    async def before_the_start(self) -> None:
        """Return when this node may take part.

        Raises:
            QuorumConfigError: It may not; the text names both nodes.
        """
        if not await self._poll() and not self._me.may_vote:
            # Records that a broker fetches under the id of a voter would count for that voter.
            log.warning(
                "waiting for a leader of the controllers, for only it knows who votes; none of "
                "these says that it leads: %s",
                ", ".join(f"{one.host}:{one.port}" for one in self._known),
            )
            while not await self._poll():
                await self._pause(EVERY_MS)
        if self._doubts.is_open:
            log.info("somebody with our id or directory fetched lately: looking again")
        for _ in range(POLLS_MAX):
            if not self._doubts.is_open:
                return
            await self._pause(EVERY_MS)
            await self._poll()

    async def compare(
        self, marks: Marks, *, asks_first: bool = False
    ) -> dict[CommittedBatch, Comparison]:
        """Return when the leader's log is compared; call it after `before_the_start`.

        Args:
            marks: The batches that this broker has noted.
            asks_first: Ask first for the present leader.

        Returns:
            The result for each batch that was compared with a leader's log. Others are left out: a
            node that votes does not wait long.

        Raises:
            QuorumConfigError: The leader's log is another one; the text names both.
        """
        found: dict[CommittedBatch, Comparison] = {}
        others: dict[CommittedBatch, LeaderView] = {}
        if asks_first and marks:
            await self._poll()
        for polls in count(1):
            if (leader := self._leader) is not None:
                for batch in marks.keys() - found.keys():
                    said = await self._compare(*leader, batch, is_late=polls >= POLLS_MAX)
                    if said is not None:
                        found[batch] = said
                    if said is Comparison.OTHER:
                        others[batch] = leader[1]
            elif self._me.may_vote:
                break  # the election of one may need this node
            if len(found) == len(marks):
                break
            if polls == POLLS_MAX:
                log.warning("no leader says whether its log is the one that this node followed")
            if polls >= POLLS_MAX and (self._me.may_vote or others):
                break
            await self._pause(EVERY_MS)
            await self._poll()
        if others:
            raise QuorumConfigError(_younger_log(self._me, marks, others))
        return found

    async def _compare(
        self, node: Node, view: LeaderView, batch: CommittedBatch, *, is_late: bool
    ) -> Comparison | None:
        if view.epoch >= batch.epoch:
            return await self._questions.compare(node, view.epoch, batch, self._me.cluster_id)
        # A leader of an older epoch may be cut off from the others: then it soon resigns.
        return Comparison.OTHER if is_late else None

    async def until_listed(self) -> None:
        """While this node takes part: return when the leader lists it, and no other of its id.

        Raises:
            QuorumConfigError: It must end; the text names both nodes.
        """
        self._doubts = Doubts(self._me, RECENT_MS, takes_part=True)
        while True:
            await self._pause(LATER_MS)
            await self._poll()
            if self._doubts.is_listed and not self._doubts.is_open:
                return

    async def _poll(self) -> bool:
        """Ask all known controllers; returns whether a leader of this cluster has answered."""
        asked = tuple(self._known)
        answers = await asyncio.gather(*(self._questions.ask(node) for node in asked))
        polls = []
        for node, said in zip(asked, answers, strict=True):
            self._note(node, said)
            if said.view is not None and said.cluster_id == self._me.cluster_id:
                polls.append((node, said.view))
        problem = other_cluster(self._me, self._clusters, self._needed)
        newest = self._leader = max(polls, key=_epoch, default=None)
        if newest is not None:
            self._doubts.take(newest[1])
            if difference := other_voters(self._me, self._voters, newest[1]):
                log.warning(difference)
                self._voters = ()  # logged once
        problem = problem or self._doubts.problem
        if problem is not None:
            raise QuorumConfigError(problem)
        return newest is not None

    def _note(self, node: Node, said: ControllerAnswer) -> None:
        if said.cluster_id is None:
            return
        if node.id != self._me.key.id:
            self._clusters[f"{node.host}:{node.port}"] = said.cluster_id
        if said.cluster_id == self._me.cluster_id and len(self._known) < ADDRESSES_MAX:
            addresses = {(one.host, one.port) for one in self._known}
            news = [one for one in said.controllers if (one.host, one.port) not in addresses]
            self._known |= dict.fromkeys(news)

    async def _pause(self, delay_ms: int) -> None:
        await pause(self._ports.scheduler, delay_ms)


def _epoch(found: tuple[Node, LeaderView]) -> int:
    return found[1].epoch


def _younger_log(me: Identity, marks: Marks, others: Mapping[CommittedBatch, LeaderView]) -> str:
    refused = {batch: places for batch, places in marks.items() if batch in others}
    batches = " and one ".join(f"at offset {at} of epoch {epoch}" for at, epoch, _ in refused)
    leader = next(iter(others.values())).leader
    return (
        f"node.id={me.key.id} ({me.place}): {leader} has cluster.id={me.cluster_id}, but not "
        f"the metadata log of this broker, which knows a committed batch {batches} that is not "
        f"there: the log is a younger one, or an older copy. {remedy(refused)}"
    )


def watch_on(watch: IdentityWatch, failed: Callable[[BaseException], None]) -> "asyncio.Task[None]":
    """Watch on while the node takes part; `failed` is called when it must end."""

    async def proceed() -> None:
        try:
            await watch.until_listed()
        except QuorumConfigError as error:
            failed(error)
        except Exception:
            log.exception(
                Incident.DEFECT.line(what="the check for another node of this id has ended")
            )

    return asyncio.create_task(proceed())
