"""Lives of brokers: who is fenced acts on it, who is cut off is unhealthy, and both come back.

What a broker reaches is validated by what the world does to it, never by what it believes.
"""

from typing import TYPE_CHECKING

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import MetadataRecord
from metadata_topic.raft.messages import FetchResponse, FetchSnapshotResponse, Response
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.liveness import LOOK_US, NEVER

if TYPE_CHECKING:
    from tests.support.nodes_world.node import ClusterNode
    from tests.support.nodes_world.world import NodesWorld

CONNECT_MS = 2_000
SLACK_MS = 1_500
"""A disk that takes its time, a retry, and the time between two looks."""
RED_FETCH_TIMEOUTS = 2
_FETCHED = (FetchResponse, FetchSnapshotResponse)


class Lives:
    """See the module.

    Attributes:
        longest_ms: the longest waits that there were, by what was waited for.
        fences: how many broker lives were fenced.
    """

    def __init__(self, world: "NodesWorld") -> None:
        self.world = world
        self._next_us = 0
        self._fenced: dict[int, tuple[int, int]] = {}  # by broker: offset and time of the fence
        self._unfenced: set[int] = set()
        self._heard_us: dict[int, int] = {}
        self._named: dict[int, tuple[int, int, int | None]] = {}
        self._reached_us = dict.fromkeys(world.plan.broker_ids, NEVER)
        self._absent_us: dict[int, int] = {}
        self._validated: MetadataImage | None = None
        self.fences = 0
        self.longest_ms = {"acts": 0, "serves": 0, "red": 0}
        world.oracle.listeners.append(self._committed)

    def _committed(self, epoch: int, offset: int, record: MetadataRecord) -> None:
        value = record.value
        if record.name == "RegisterBrokerRecord":
            self._fences(value.broker_id, offset)
        elif record.name == "BrokerRegistrationChangeRecord" and value.fenced:
            if value.fenced > 0:
                self._has_reason(value.broker_id)
                self._fences(value.broker_id, offset)
            else:
                self._fenced.pop(value.broker_id, None)
                self._unfenced.add(value.broker_id)

    def _fences(self, broker_id: int, offset: int) -> None:
        self._fenced[broker_id] = offset, self.world.now_us
        if broker_id in self._unfenced:
            self._unfenced.discard(broker_id)
            self.fences += 1

    def _has_reason(self, broker_id: int) -> None:
        """Who reaches the active controller is heard there, and not fenced."""
        node, plan = self.world.nodes.get(broker_id), self.world.plan
        if node is None or node.broker is None or node.broker.is_over:
            return
        if not self.world.is_disturbed:
            return  # nobody looks any more at who reaches whom
        since = max(self.world.reaches_since(node), self._reached_us.get(broker_id, NEVER))
        ms = (self.world.now_us - since) // 1000
        limit_ms = 2 * plan.session_ms + CONNECT_MS + SLACK_MS
        if since != NEVER and ms > limit_ms * (1 + plan.clock_skew):
            raise Violation("a broker that is heard is not fenced", f"{node}, for {ms} ms")

    # -- what a broker does

    def ends(self, node: "ClusterNode", error: BaseException) -> None:
        """A broker gives up: only another life of its id is a reason."""
        world = self.world
        assert node.broker is not None
        known = world.oracle.reference.brokers.get(node.id)
        if known is not None and known.incarnation_id == node.broker.incarnation_id:
            world.breaks("a broker continues while it is the one of its id", f"{node}: {error!r}")
            return
        world.tell(f"{node} ends: {error}")
        world.at_node(world.now_us, node, world.crash_for, node, 300)

    def hears(self, node: "ClusterNode", response: Response | None, source: int) -> None:
        """A node hears of one that leads, or says so."""
        if isinstance(response, _FETCHED) and response.standing.leader_id == source:
            self._heard_us[node.id] = self.world.now_us

    # -- validating

    def look(self) -> None:
        """Validate, if it is time."""
        now_us = self.world.now_us
        if now_us < self._next_us:
            return
        self._next_us = now_us + LOOK_US
        self._looks_at_leaders()
        for node in self.world.brokers:
            if node.up and node.broker is not None and node.paused_until <= now_us:
                self._look_at(node, now_us)
            else:
                self._reached_us[node.id] = NEVER
                self._heard_us[node.id] = now_us

    def _looks_at_leaders(self) -> None:
        """With one replica, a broker that is not fenced leads what it has, and no other does."""
        image = self.world.oracle.reference
        if image is self._validated:
            return
        self._validated = image
        for topic in image.topics_by_id.values():
            for partition in topic.partitions.values():
                (replica,) = partition.replicas
                broker = image.brokers.get(replica)
                is_on = broker is not None and not broker.fenced
                if broker is not None and broker.in_controlled_shutdown:
                    continue
                if (partition.leader == replica) is not is_on:
                    what = f"{topic.name}: leader {partition.leader}, {broker}"
                    raise Violation("who is not fenced leads what it has", what)

    def _look_at(self, node: "ClusterNode", now_us: int) -> None:
        broker = node.broker
        assert broker is not None
        life = broker.life
        if life is not None:
            image = node.metadata.image
            known = image.brokers.get(node.id)
            is_fenced = known is None or known.epoch != life.epoch or known.fenced
            if is_fenced is not life.is_fenced:
                what = f"{node}: fenced={life.is_fenced}, image {known}"
                raise Violation("a broker serves as its image says", what)
        if broker.is_over:
            return
        self._is_unhealthy_in_time(node, now_us)
        since = self.world.reaches_since(node)
        if since == NEVER:
            self._reached_us[node.id] = NEVER
            return
        if self._reached_us[node.id] == NEVER:
            self._reached_us[node.id] = now_us
        self._acts_in_time(node, now_us, max(since, self._reached_us[node.id]))

    def _is_unhealthy_in_time(self, node: "ClusterNode", now_us: int) -> None:
        """One that reaches no active controller for a session's time is unhealthy.

        To hear of another leader is something, and counts as the leader's own word.
        """
        broker, plan = node.broker, self.world.plan
        assert broker is not None
        named = node.life, node.core.epoch, node.core.leader_id
        if node.leads or self._named.get(node.id) != named:
            self._named[node.id] = named
            self._heard_us[node.id] = now_us
        heard_us = self._heard_us[node.id]
        timeout_ms = node.config.fetch_timeout_ms
        limit_ms = max(plan.session_ms, RED_FETCH_TIMEOUTS * timeout_ms) + timeout_ms // 2
        silent_ms = (now_us - heard_us) // 1000
        if silent_ms > limit_ms * (1 + plan.clock_skew) + SLACK_MS and not broker.problems():
            raise Violation("a broker that is cut off is unhealthy", f"{node} for {silent_ms} ms")
        self.longest_ms["red"] = max(self.longest_ms["red"], silent_ms)

    def _acts_in_time(self, node: "ClusterNode", now_us: int, since: int) -> None:
        """Who reaches the active controller knows of its fencing, and soon serves again."""
        world, plan, broker = self.world, self.world.plan, node.broker
        assert broker is not None
        slower = 1 + plan.clock_skew
        follow_ms = world.liveness.limits.follow
        fetch_timeout_ms = node.config.fetch_timeout_ms
        if (now_us - since) // 1000 > follow_ms + fetch_timeout_ms and broker.health.problems(
            node.local_ms()
        ):
            raise Violation(
                "a broker that follows is not unhealthy", f"{node}: {broker.problems()}"
            )
        fenced = self._fenced.get(node.id)
        if fenced is not None:
            offset, at_us = fenced
            ms = (now_us - max(since, at_us)) // 1000
            self._waits("acts", ms)
            image_end = node.metadata.image.provenance.end_offset
            if ms > plan.heartbeat_ms * slower + follow_ms and image_end <= offset:
                raise Violation("a fenced broker knows it in time", f"{node}: {ms} ms, at {offset}")
        known = world.oracle.reference.brokers.get(node.id)
        is_served = (
            known is not None and known.incarnation_id == broker.incarnation_id and not known.fenced
        )
        if is_served:
            self._absent_us.pop(node.id, None)
            return
        absent_us = max(self._absent_us.setdefault(node.id, now_us), since)
        ms = (now_us - absent_us) // 1000
        self._waits("serves", ms)
        limit_ms = slower * (2 * plan.session_ms + follow_ms + CONNECT_MS) + SLACK_MS
        if ms > limit_ms:
            raise Violation(
                "a broker that reaches the active controller serves",
                f"{node} not for {ms} ms, {known}",
            )

    def _waits(self, what: str, ms: int) -> None:
        self.longest_ms[what] = max(self.longest_ms[what], ms)
