"""A broker on controllers that keep no list of removed topics, against a twin that forgets nothing.

The cluster's log is a list of records; its snapshots are Kafka's: without the fields of ours. The
broker replays what is committed, makes snapshots of its own, fetches those of the cluster when it
is behind, is killed, loses power, loses its metadata log, and asks as the remover does. What waits
for a thread waits until it must be written.
"""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.remote.removed_topics import RemovedTopicsFile
from metadata_topic.image.difference import difference
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.image.snapshot_records import snapshot_records
from runtime.work import at_once
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.pools import HeldPool

IDS = [bytes([n]) * 16 for n in range(1, 4)]
CONFIG = {"resource_type": 2, "name": "remote.storage.enable", "value": "true"}


def replayed(loader: ImageLoader, records: list[MetadataRecord], end: int) -> None:
    for record in records:
        loader.add(record)
    loader.end_of_batch(Provenance(end - 1, 1, 1))


class Cluster:
    """The committed log of Kafka's controllers, and what they were told in it."""

    def __init__(self) -> None:
        self.log: list[list[MetadataRecord]] = []
        self.living: set[bytes] = set()
        self.used: set[bytes] = set()

    def create(self, topic_id: bytes) -> None:
        if topic_id not in self.used:
            self.used.add(topic_id)
            self.living.add(topic_id)
            name = topic_id.hex()
            config = make("ConfigRecord", resource_name=name, **CONFIG)
            self.log.append([make("TopicRecord", name=name, topic_id=topic_id), config])

    def delete(self, topic_id: bytes) -> None:
        if topic_id in self.living:
            self.living.discard(topic_id)
            self.log.append([make("RemoveTopicRecord", topic_id=topic_id)])

    def saved(self) -> tuple[list[list[MetadataRecord]], set[bytes]]:
        return list(self.log), set(self.living)

    def snapshot(self) -> list[MetadataRecord]:
        loader = ImageLoader(EMPTY_IMAGE)
        replayed(loader, [one for batch in self.log for one in batch], len(self.log))
        records = list(snapshot_records(loader.take()[0]))
        return [record for record in records if record.name != "NoOpRecord"]


class Broker:
    """What lies on its disk outlives it: a snapshot, the log from its end on, and the file."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.snapshot: list[MetadataRecord] = []
        self.snapshot_end = self.log_end = 0
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.disk = PowerCutDisk(self.directory, SeededRng(self.lives))
        self.pool = HeldPool()
        self.file = RemovedTopicsFile(self.directory, "c", self.disk, self.pool)
        self.file.read()
        self.file.begin(EMPTY_IMAGE)
        self.image, self.end = EMPTY_IMAGE, 0
        self.replace()

    def replace(self) -> None:
        """Load the snapshot on the disk, as the metadata loader does."""
        loader = ImageLoader(EMPTY_IMAGE)
        replayed(loader, self.snapshot, self.snapshot_end)
        image, _ = loader.take()
        delta = difference(self.image, image)
        self.loader, self.image, self.end = loader, image, self.snapshot_end
        if not delta.is_empty:
            self.file.follow(image, delta)

    def read(self, count: int) -> set[bytes]:
        """Apply committed batches; the ids whose removal was read."""
        removed = set[bytes]()
        for batch in self.cluster.log[self.end : self.end + count]:
            self.end += 1
            self.log_end = max(self.log_end, self.end)
            replayed(self.loader, batch, self.end)
            self.image, delta = self.loader.take()
            self.file.follow(self.image, delta)
            removed |= {one.value.topic_id for one in batch if one.name == "RemoveTopicRecord"}
        return removed

    def make_snapshot(self) -> None:
        self.snapshot, self.snapshot_end = list(snapshot_records(self.image)), self.end

    def fetch(self) -> None:
        self.file.keep()  # as `NodeSettings.before_install`
        self.snapshot, self.snapshot_end = self.cluster.snapshot(), len(self.cluster.log)
        self.log_end = self.snapshot_end
        self.replace()

    async def kept(self) -> list[bytes]:
        asked = asyncio.ensure_future(self.file.kept(self.image.topics_by_id))
        await self.pool.until_held(self.pool.held + 1)
        self.pool.release()
        return await asked

    def lose_log(self) -> None:
        self.snapshot, self.snapshot_end, self.log_end = [], 0, 0

    def emptied(self, ids: list[bytes]) -> None:
        """As `BrokerAnswers`, where the controllers keep no list."""
        self.loader.drop_removed([one for one in ids if one in self.image.removed_tiered_topics])
        self.file.drop(ids)


class World:
    """All of it, and what the twin knows.

    A removal that was read counts once it is written: a kill before that has the log read again,
    unless a snapshot has taken its place by then.
    """

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster()
        self.broker = Broker(self.cluster, directory)
        self.saved = self.cluster.saved()
        self.read_only, self.removed, self.emptied_since = set[bytes](), set[bytes](), set[bytes]()

    def read(self, count: int = 1_000) -> None:
        self.read_only |= self.broker.read(count)

    def write(self) -> None:
        """What waits for a thread has its turn."""
        self.broker.pool.release()
        self.written()

    def written(self) -> None:
        self.removed |= self.read_only
        self.read_only.clear()

    def fetch(self) -> None:
        self.cluster.log.append([make("NoOpRecord")])  # so the broker is behind
        self.broker.fetch()
        self.written()

    def kill(self) -> None:
        self.read_only.clear()
        self.broker.begin()

    def cut(self) -> None:
        self.broker.disk.cut()
        self.kill()

    def lose_log(self) -> None:
        self.broker.lose_log()
        self.kill()

    def save(self) -> None:
        self.saved = self.cluster.saved()

    def restore(self) -> None:
        """Of all nodes: a broker does not follow a leader whose log ends before its own."""
        self.cluster.log, self.cluster.living = list(self.saved[0]), set(self.saved[1])
        self.lose_log()

    def emptied(self, topic_id: bytes) -> None:
        if topic_id in self.removed:
            self.broker.emptied([topic_id])
            self.emptied_since.add(topic_id)

    def forget(self, topic_id: bytes) -> None:
        if topic_id not in self.broker.image.topics_by_id:
            self.broker.file.forget(topic_id)
            self.read_only.add(topic_id)
            self.emptied_since.discard(topic_id)
            self.broker.file.keep()  # then it is answered
            self.written()

    def ask(self) -> None:
        """The image is at what was confirmed after the question."""
        self.read()
        kept = asyncio.run(self.broker.kept())
        self.written()
        self.removed -= self.cluster.living  # a log of an earlier time took its word back
        assert not set(kept) & self.cluster.living
        assert set(kept) <= self.removed, "a removal that nobody read"
        assert self.removed - self.emptied_since <= set(kept), "a removal that was read"


EACH: dict[str, Callable[[World], None]] = {
    "read": World.read,
    "read one": lambda world: world.read(1),
    "own snapshot": lambda world: world.broker.make_snapshot(),
    "fetch": World.fetch,
    "write": World.write,
    "kill": World.kill,
    "cut": World.cut,
    "lose log": World.lose_log,
    "save": World.save,
    "restore": World.restore,
    "ask": World.ask,
}
OF_TOPICS: dict[str, Callable[[World, bytes], None]] = {
    "create": lambda world, topic_id: world.cluster.create(topic_id),
    "delete": lambda world, topic_id: world.cluster.delete(topic_id),
    "emptied": World.emptied,
    "forget": World.forget,
}
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(OF_TOPICS)), st.sampled_from(IDS)),
        st.tuples(st.sampled_from(sorted(EACH)), st.none()),
    ),
    max_size=60,
)


def said(words: str) -> list[tuple[str, bytes | None]]:
    return [(word, IDS[0] if word in OF_TOPICS else None) for word in words.split(", ")]


@example(said("create, read, delete, read, fetch, kill"))
@example(said("create, read, delete, read, fetch, cut"))
@example(said("create, read, own snapshot, delete, read, write, kill, fetch"))
@example(said("create, read, save, delete, read, restore, ask, delete, fetch"))
@settings(max_examples=300, deadline=None)
@given(steps)
def test_no_existing_topic_is_removed_and_no_read_removal_is_forgotten(
    history: list[tuple[str, bytes | None]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        for what, topic_id in history:
            if topic_id is None:
                EACH[what](world)
            else:
                OF_TOPICS[what](world, topic_id)
        world.ask()


def test_what_a_snapshot_only_lacks_is_not_removed(tmp_path: Path) -> None:
    cluster = Cluster()
    broker = Broker(cluster, tmp_path)
    known, read, later = IDS[:3]
    for one in (known, read):
        cluster.create(one)
    broker.read(2)
    cluster.delete(read)
    broker.read(1)
    cluster.create(later)
    cluster.delete(known)
    cluster.delete(later)
    broker.fetch()
    assert broker.image.removed_tiered_topics == {}
    assert broker.file.keep() == [read]


def test_the_step_to_a_snapshot_gives_the_loop_up() -> None:
    loader = ImageLoader(EMPTY_IMAGE)
    topics = [n.to_bytes(16, "big") for n in range(1, 10_000)]
    replayed(loader, [make("NoOpRecord", removed_tiered_topics=topics)], 1)
    image: MetadataImage = loader.take()[0]
    taken = list(difference.steps(EMPTY_IMAGE, image))
    assert len(taken) > 1
    assert list(at_once(difference.steps(EMPTY_IMAGE, image)).tiered_removals) == topics
