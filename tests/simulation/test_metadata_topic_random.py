"""Two brokers, one metadata topic, any order of what can happen; a seed replays it.

Checked after each step: a ready owner's pair is in the topic; an answered write stands in the
topic, accepted, with the log start that its owner carried then; no record carries another log
start than its owner's, nor forgets an unclean election that was told before its owner began.
Checked at rest: all readers know what the topic, folded from its begin, says, and their history is
that of a naive walk over the topic.
"""

import random
from concurrent.futures import Future
from itertools import count

import pytest

from rlmm import records
from rlmm.api import Fence, MetadataNotReadyError
from rlmm.events import SegmentAdded, SegmentUpdated
from rlmm.lifecycle import Verdict
from rlmm.store import partition_key
from rlmm.testing import PARTITION, segment, update
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from tests.support.rounds import rounds
from tests.support.sim.clock import ManualClock
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import WRITE_WAIT_MS, Node, known, truth

STEPS = 250
DELETED = SegmentState.DELETE_SEGMENT_FINISHED
Written = tuple[bytes, SegmentState, Fence, int]  # the last: the log start it carries


class World:
    def __init__(self, seed: int, *, losses: bool) -> None:
        self.rng = random.Random(seed)
        self.losses = losses
        self.clock = ManualClock()
        self.topic = MemoryTopic(1)
        self.nodes = [Node(self.topic, self.clock, 1), Node(self.topic, self.clock, 2)]
        self.epoch = 0
        self.incarnations = count(1)
        self.fences: dict[int, Fence] = {}
        self.numbers = count(1)
        self.answers: list[tuple[Written, Future[None]]] = []
        self.managers: dict[Future[None], object] = {}  # who has to answer
        self.lost = False
        self.log_starts = count(1)
        self.carried: dict[Fence, list[int]] = {}
        self.unclean: dict[int, int] = {}  # leader epoch: itself where it was elected uncleanly
        self.elections: list[tuple[Fence, Future[None]]] = []
        self.checked = 0  # records of the topic
        self.told: dict[Fence, int] = {}  # unclean election that an owner must know of

    def step(self) -> None:
        node = self.rng.choice(self.nodes)
        action = self.rng.choice(
            [
                self.turn,
                self.turn,
                self.turn,
                self.elect,
                self.own_again,
                self.carry,
                self.add,
                self.add,
                self.move,
                self.move,
                self.hold,
                self.land,
                self.land_ghost,
                self.deafen,
                self.silence,
                self.kill,
                self.drop,
                self.wait,
                self.lose,
            ]
        )
        action(node)

    def turn(self, node: Node) -> None:
        node.turn(1)

    def elect(self, node: Node) -> None:
        if self.rng.random() < 0.3:
            self.epoch += 1
            self.unclean[self.epoch] = self.epoch if self.rng.random() < 0.3 else -1
            self.own(node, self.epoch)

    def own(self, node: Node, epoch: int) -> None:
        fence = self.fences[node.number] = Fence(epoch, next(self.incarnations))
        unclean = self.unclean[epoch]
        before = [
            self.told[lower]
            for lower, done in self.elections
            if lower < fence and done.done() and not done.exception()
        ]
        self.told[fence] = max([unclean, *before])
        owned = node.manager.own(PARTITION, fence, unclean_epoch=unclean)
        self.elections.append((fence, owned))

    def carry(self, node: Node) -> None:
        fence = self.fences.get(node.number)
        if fence is not None:
            log_start = next(self.log_starts)
            node.manager.carry(PARTITION, fence, log_start)
            if node.manager.is_ready(PARTITION):
                self.carried.setdefault(fence, []).append(log_start)

    def log_start_of(self, fence: Fence) -> int:
        return max(self.carried.get(fence, [-1]))

    def own_again(self, node: Node) -> None:
        fence = self.fences.get(node.number)
        if fence is not None and not node.manager.is_ready(PARTITION):
            self.own(node, fence.leader_epoch)

    def add(self, node: Node) -> None:
        fence = self.fences.get(node.number, Fence(0, 0))
        number = next(self.numbers)
        of = segment(number, number % 7 * 10, number % 7 * 10 + 9)
        written = of.id.id, of.state, fence, self.log_start_of(fence)
        self.note(node, written, node.manager.add(of, fence, number))

    def move(self, node: Node) -> None:
        fence = self.fences.get(node.number, Fence(0, 0))
        try:
            live: list[RemoteLogSegmentMetadata] = node.segments()
        except MetadataNotReadyError:
            return
        if live:
            of = self.rng.choice(live)
            state = self.rng.choice(list(SegmentState)[1:])
            done = node.manager.update(update(of, state), fence, 1)
            self.note(node, (of.id.id, state, fence, self.log_start_of(fence)), done)

    def note(self, node: Node, written: Written, done: "Future[None]") -> None:
        self.answers.append((written, done))
        self.managers[done] = node.manager

    def hold(self, node: Node) -> None:
        node.port.held = not node.port.held

    def land(self, node: Node) -> None:
        node.port.land_waiting(self.rng.randint(0, len(node.port.waiting)))

    def land_ghost(self, node: Node) -> None:
        if node.ghosts:
            ghost = self.rng.choice(node.ghosts)
            ghost.land_waiting(self.rng.randint(0, len(ghost.waiting)))

    def deafen(self, node: Node) -> None:
        node.port.deaf = not node.port.deaf
        node.port.read_max = self.rng.choice([1, 3, 1_000])

    def silence(self, node: Node) -> None:
        node.port.silent = self.rng.random() < 0.2

    def kill(self, node: Node) -> None:
        if self.rng.random() < 0.4:
            node.kill()

    def drop(self, node: Node) -> None:
        if self.rng.random() < 0.3:
            node.port.drop_waiting()

    def wait(self, node: Node) -> None:
        self.clock.advance(self.rng.choice([10, 1_000, WRITE_WAIT_MS]))

    def lose(self, node: Node) -> None:
        log = self.topic.logs[0]
        if self.losses and log and self.rng.random() < 0.2:
            self.topic.lose(0, self.rng.randint(max(0, len(log) - 5), len(log) - 1))
            self.checked = min(self.checked, len(log))
            self.lost = True

    def check(self) -> None:
        self.check_stamps()
        store, verdicts = truth(self.topic)
        facts = store.facts(0, partition_key(PARTITION))
        for node in self.nodes:
            if node.manager.is_ready(PARTITION) and node.number in self.fences and not self.lost:
                assert facts is not None
                assert facts.fence >= self.fences[node.number]
        if not self.lost:
            accepted = self.accepted(verdicts)
            for written, done in self.answers:
                if done.done() and done.exception() is None:
                    assert accepted[written] >= self.told[written[2]]

    def accepted(self, verdicts: list[Verdict | None]) -> dict[Written, int]:
        """Accepted records, and the unclean election that each carries."""
        found: dict[Written, int] = {}
        for stored, verdict in zip(self.topic.logs[0], verdicts, strict=True):
            if verdict is not Verdict.ACCEPTED:
                continue
            event = records.decode(stored.value)
            if isinstance(event, SegmentAdded):
                written = event.metadata.id.id, event.metadata.state, *_carried(event)
            elif isinstance(event, SegmentUpdated):
                written = event.update.id.id, event.update.state, *_carried(event)
            else:
                continue
            found[written] = event.stamp.unclean_epoch
        return found

    def check_stamps(self) -> None:
        """Each record carries what is its owner's, wherever it landed."""
        for stored in self.topic.logs[0][self.checked :]:
            stamp = records.decode(stored.value).stamp
            assert stamp.log_start in {-1, *self.carried.get(stamp.fence, ())}
            assert stamp.unclean_epoch >= self.unclean[stamp.fence.leader_epoch]
        self.checked = len(self.topic.logs[0])

    def history(self, verdicts: list[Verdict | None]) -> list[object]:
        """What the topic proves, without the rules that keep it small."""
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        named: set[bytes] = set()
        unclean = highest = -1
        for stored, verdict in zip(self.topic.logs[0], verdicts, strict=True):
            event = records.decode(stored.value)
            stamp, epoch = event.stamp, event.stamp.fence.leader_epoch
            highest = max(highest, epoch)
            if verdict is not Verdict.FENCED:
                unclean = max(unclean, stamp.unclean_epoch)
            if verdict is not Verdict.ACCEPTED:
                continue
            if stamp.log_start >= 0:
                starts[epoch] = max(starts.get(epoch, -1), stamp.log_start)
            if isinstance(event, SegmentAdded) and event.metadata.id.id not in named:
                named.add(event.metadata.id.id)
                if event.metadata.segment_size_bytes:
                    end = event.metadata.end_offset + 1
                    ends[epoch] = max(ends.get(epoch, -1), end)
            elif isinstance(event, SegmentUpdated) and event.update.state is DELETED:
                named.discard(event.update.id.id)  # a stale barrier may name it once more
        return [_telling(starts), _telling(ends), unclean, highest]

    def come_to_rest(self) -> None:
        for node in self.nodes:
            node.port.held = node.port.deaf = node.port.silent = False
            node.port.read_max = 1_000
            node.port.land_waiting()
            for ghost in node.ghosts:
                ghost.land_waiting()
        self.clock.advance(2 * WRITE_WAIT_MS)
        self.fences.clear()  # nobody owns from here on
        for node in self.nodes:
            node.turn(3)
            node.manager.follow(PARTITION)
        for _ in range(6):
            for node in self.nodes:
                node.turn(1)


def _carried(event: SegmentAdded | SegmentUpdated) -> tuple[Fence, int]:
    return event.stamp.fence, event.stamp.log_start


def _telling(said: dict[int, int]) -> dict[int, int]:
    """Without epochs of which a later one says as much."""
    return {
        epoch: far
        for epoch, far in said.items()
        if not any(later > epoch and more >= far for later, more in said.items())
    }


@pytest.mark.parametrize("losses", [False, True], ids=["durable", "lossy"])
@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(rounds("TIDEMARK_TOPIC_SEEDS", quick=8, full=40)))
def test_readers_agree_and_answers_are_true(seed: int, losses: bool) -> None:
    world = World(seed, losses=losses)
    for _ in range(STEPS):
        world.step()
        world.check()
    world.come_to_rest()
    world.check()
    store, verdicts = truth(world.topic)
    agreed, naive = known(store), world.history(verdicts)
    for node in world.nodes:
        assert node.manager.is_ready(PARTITION)
        assert known(node.store) == agreed
        history = node.history()
        told = history.last_unclean_epoch, history.highest_epoch
        assert [history.log_starts, history.given_ends, *told] == naive
    alive = [node.manager for node in world.nodes]
    assert all(done.done() for _, done in world.answers if world.managers[done] in alive)
