"""Who lets controllers of a simulated quorum vote, and takes votes away: an operator with a tool.

Asks a leader, or another, as AddRaftVoter and RemoveRaftVoter do; is told, or not. No request is
made that would leave fewer voters with their disks than a majority: nothing could repair that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Response,
    VoterRequest,
    VoterResponse,
)
from metadata_topic.raft.voters import ReplicaKey, Voter
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.plan import key_of
from tests.support.quorum_world.starting import own_endpoints
from tests.support.quorum_world.voter_rules import Keys, keys_of, majority

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld

VOTERS_MAX = 5
LONG_LOST_US = 20_000_000
"""A disk that is lost for so long has not fetched lately, whoever is asked."""
ANSWERED_WITHIN_MS = 15_000


@dataclass
class Asked:
    """A request that a node has and has not answered.

    Attributes:
        life: of the node that has it.
        at_us: when it came there.
    """

    node: "QuorumNode"
    life: int
    request: VoterRequest
    at_us: int


class VoterOperator:
    """See the module.

    Attributes:
        open: requests that are not answered.
        done: how many changes were made, as far as answers say it.
    """

    def __init__(self, world: "QuorumWorld") -> None:
        self.world = world
        self.open: dict[int, Asked] = {}
        self.done = 0
        self._number = 0
        self._is_over = False

    def start(self) -> None:
        """Begin."""
        self._wait()

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_over = True

    def _wait(self) -> None:
        world = self.world
        pause_us = 1 + int(world.work_rng.random() * 2000 * world.plan.change_every_ms)
        world.at(world.now_us + pause_us, self._ask)

    # -- what is asked --------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._is_over:
            return
        self._wait()
        world, rng = self.world, self.world.work_rng
        leader = max(
            (one for one in world.nodes.values() if one.leads),
            key=lambda one: int(one.core.epoch),
            default=None,
        )
        controllers = world.plan.controllers
        node = world.nodes[controllers[int(rng.random() * len(controllers))]]
        if leader is not None and rng.random() < 0.85:
            node = leader
        choice, part = rng.random(), rng.random()
        if not world.net.is_lost_for_clients():
            world.at_any_life(world.net.arrival(), node, self._arrives, node, choice, part)

    def _arrives(self, node: "QuorumNode", choice: float, part: float) -> None:
        world = self.world
        if not world.runs(node):
            return
        request = self._chosen(node, choice, part)
        if request is None:
            return
        self._number += 1
        number, life = self._number, node.life
        self.open[number] = Asked(node, life, request, world.now_us)
        world.tell(f"{node} is asked for {request}")

        def respond(response: Response) -> None:
            if node.life == life and node.process is not None and not node.process.has_ended:
                assert isinstance(response, VoterResponse)
                self._answered(node, number, response)

        assert node.replica is not None
        node.replica.receive(request, respond)

    def _chosen(self, node: "QuorumNode", choice: float, part: float) -> VoterRequest | None:
        world, epoch, voters = self.world, node.core.epoch, node.core.voters
        keys = keys_of(voters)
        lost = [key for key in keys if key in world.oracle.lost_disks]
        if lost and choice < 0.25:
            return RemoveVoterRequest(epoch, lost[int(part * len(lost))])
        if choice > 0.95:
            return self._nonsense(node, part)
        others = [
            one
            for one in map(world.nodes.get, world.plan.controllers)
            if one and one.id not in voters.ids
        ]
        likes_more = choice < 0.7 if len(keys) < 3 else choice < 0.4
        if others and len(keys) < VOTERS_MAX and likes_more:
            one = others[int(part * len(others))]
            return AddVoterRequest(epoch, Voter(one.key, own_endpoints(one)), part < 0.8)
        if not keys:
            return None
        key = keys[int(part * len(keys))]
        if voters.has(node.key) and 0.6 < choice < 0.75:
            key = node.key
        left = tuple(one for one in keys if one != key)
        return RemoveVoterRequest(epoch, key) if self.can_lose(left) else None

    def _nonsense(self, node: "QuorumNode", part: float) -> VoterRequest | None:
        """What has to be refused."""
        world, epoch, voters = self.world, node.core.epoch, node.core.voters
        lost = [
            key
            for key, since_us in world.lost_us.items()
            if world.now_us - since_us > LONG_LOST_US and voters.get(key.id) is None
        ]
        if lost and part < 0.5:
            key = lost[int(part * 2 * len(lost))]
            return AddVoterRequest(epoch, Voter(key, own_endpoints(world.nodes[key.id])))
        if not voters.voters:
            return None
        one = voters.voters[int(part * len(voters.voters))]
        if part < 0.8:  # perhaps on another disk now
            now = world.nodes[one.key.id]
            return AddVoterRequest(epoch, Voter(now.key, own_endpoints(now)))
        return RemoveVoterRequest(epoch, key_of(one.key.id, 999))

    def can_lose(self, keys: Keys, lost: ReplicaKey | None = None) -> bool:
        """Whether a majority of voters has its disks, but for a lost one."""
        disks = self.world.oracle.lost_disks
        return sum(one not in disks and one != lost for one in keys) >= majority(keys)

    # -- what is answered -----------------------------------------------------------------------

    def _answered(self, node: "QuorumNode", number: int, response: VoterResponse) -> None:
        asked = self.open.pop(number, None)
        if asked is None:
            self.world.breaks("a request is answered once", f"{node}: {response}")
            return
        self.world.tell(f"{node} answers {asked.request}: {response.error.name} {response.text}")
        if response.error is not ErrorCode.NONE:
            return
        self.done += 1
        request, voters = asked.request, self.world.oracle.voters.in_force
        match request:
            case AddVoterRequest():
                is_so = voters.has(request.voter.key) or not request.waits_for_commit
            case RemoveVoterRequest():
                is_so = not voters.has(request.key)
            case _:
                is_so = True
        if not is_so:
            self.world.breaks("success means that it is committed", f"{node}: {request}")

    @property
    def is_idle(self) -> bool:
        """Whether no change is under way, here or by a controller that joins by itself."""
        return not any(
            one.leads and one.core.leadership.change for one in self.world.nodes.values()
        )

    def validate_end(self) -> None:
        """Each request that came to a node that still lives was answered in its time."""
        late_us = self.world.now_us - ANSWERED_WITHIN_MS * 1000
        for asked in self.open.values():
            if asked.node.life == asked.life and asked.at_us < late_us:
                raise Violation("every request is answered", f"{asked.node}: {asked.request}")
