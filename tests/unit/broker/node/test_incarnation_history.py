"""Directories that were put back from an older copy are found; no ordinary life is taken for one.

Each start runs what a broker runs, on real files: directories opened, the metadata node started,
directories settled, lives written, the broker registered.
"""

import asyncio
import shutil
from collections.abc import Collection
from pathlib import Path
from random import Random

import pytest

from broker.node.directories import DirectoryError, open_directories
from broker.node.directory_checks import (
    renew_running_incarnation,
    settle_directories,
    without_sidecars,
    write_incarnation,
)
from broker.node.incarnation_history import (
    Incarnation,
    dump_incarnations,
    next_incarnations,
    parse_incarnations,
    read_incarnations,
)
from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.meta_properties import META_PROPERTIES
from local_log.manager.log_dir import INCARNATION_HISTORY, LogDir
from metadata_topic.controller.brokers import Registration, register_broker, unfence_broker
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.node import MetadataNode, NodeIdentity, QuorumConfigError
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from runtime.disk import Disk, OpenFile
from tests.support.samples.metadata import apply, cluster_of, started
from tests.support.sim.ports import simulated
from tests.support.worlds.one_node import looped, sole_voter

CLUSTER = "tidemarkLivesCluster01"
REGISTERED, LIVES_WRITTEN, SETTLED = "registered", "lives written", "settled"


class UnhurriedDisk(Disk):
    """The power never goes here."""

    def fsync(self, file: OpenFile) -> None:
        """Nothing."""

    def fsync_path(self, path: Path) -> None:
        """Nothing."""


class Machine:
    """The directories of one broker; every method but `start` works on a stopped one."""

    def __init__(self, root: Path, *, dirs: int, dedicated: bool) -> None:
        self.root = root
        self.log_dirs = [root / f"data-{number}" for number in range(dirs)]
        self.metadata = root / "metadata" if dedicated else self.log_dirs[0]
        self.ports = looped(simulated(7, disk=UnhurriedDisk()))
        everything = tuple(dict.fromkeys([self.metadata, *self.log_dirs]))
        plan = FormatPlan(CLUSTER, 1, everything, self.metadata, None)
        format_directory(plan, disk=self.ports.disk, clock=self.ports.clock, rng=self.ports.rng)
        self.is_missing_some = False
        self._parked: dict[str, Path] = {}

    def start(self, until: str = REGISTERED) -> set[Path]:
        """Start and stop (or be killed after a step); the directories that were offline."""
        return asyncio.run(self._start(until))

    async def _start(self, until: str) -> set[Path]:
        directories = open_directories(
            self.log_dirs, metadata_path=self.metadata, node_id=1, disk=self.ports.disk
        )
        node = MetadataNode(
            self.metadata,
            NodeIdentity(
                node_id=1,
                cluster_id=directories.cluster_id,
                directory_id=directories.ids[self.metadata],
            ),
            self.ports,
            sole_voter(static=True),
        )

        def settle(image: MetadataImage) -> None:
            self.is_missing_some = settle_directories(
                directories,
                image,
                log_dirs=self.log_dirs,
                node_id=1,
                disk=self.ports.disk,
                rng=self.ports.rng,
            )

        try:
            await node.begin(settle)
            working = [path for path in self.log_dirs if path in directories.ids]
            if until != SETTLED:
                await self._register(node, [directories.ids[p] for p in working], working, until)
            await node.close()
        finally:
            directories.release()
        return set(directories.offline)

    async def _register(
        self, node: MetadataNode, ids: Collection[bytes], working: Collection[Path], until: str
    ) -> None:
        incarnation_id = self.ports.rng.uuid()
        for path in working:
            write_incarnation(self.ports.disk, path, node.image, 1, incarnation_id)
        if until == LIVES_WRITTEN:
            return
        registration = Registration(
            1, incarnation_id, (), SUPPORTED_FEATURES, log_dirs=tuple(ids), keeps_directories=True
        )
        epoch = await node.submit(lambda image: register_broker(image, registration))
        await self._assign(node, ids)
        await node.submit(lambda image: unfence_broker(image, broker_id=1, broker_epoch=epoch))

    async def _assign(self, node: MetadataNode, ids: Collection[bytes]) -> None:
        """Once: a replica in each directory, so that one that is not there is missed."""
        records = [make("TopicRecord", name="t", topic_id=b"t" * 16)]
        records += [
            make(
                "PartitionRecord",
                2,
                partition_id=index,
                topic_id=b"t" * 16,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory_id],
            )
            for index, directory_id in enumerate(ids)
        ]
        if "t" not in node.image.topics_by_name:
            await node.submit(lambda _image: ControllerResult(tuple(records), None))

    def copy(self, path: Path) -> Path:
        """Take a copy of a directory."""
        target = self.root / f"copy-of-{path.name}-{len(list(self.root.iterdir()))}"
        shutil.copytree(path, target)
        return target

    def put_back(self, path: Path, copy: Path) -> None:
        shutil.rmtree(path)
        shutil.copytree(copy, path)

    def unmount(self, path: Path) -> None:
        path.rename(path.with_suffix(".away"))

    def mount(self, path: Path) -> None:
        path.with_suffix(".away").rename(path)


SHAPES = [(1, False), (1, True), (2, False), (2, True), (3, False)]
shapes = pytest.mark.parametrize(("dirs", "dedicated"), SHAPES)
several = pytest.mark.parametrize(("dirs", "dedicated"), SHAPES[2:])


def machine_at(root: Path, dirs: int, dedicated: bool) -> Machine:
    machine = Machine(root, dirs=dirs, dedicated=dedicated)
    assert machine.start() == set()
    return machine


def test_a_directory_that_left_the_configuration_is_missing(tmp_path: Path) -> None:
    """Replicas of before the rule may lie in it: none of them is begun again."""
    machine = machine_at(tmp_path, 2, True)
    assert not machine.is_missing_some
    left = machine.log_dirs.pop()
    assert machine.start(SETTLED) == set()
    assert machine.is_missing_some
    machine.log_dirs.append(left)
    assert machine.start(SETTLED) == set()
    assert not machine.is_missing_some


@shapes
@pytest.mark.parametrize("seed", range(3))
def test_no_ordinary_life_is_refused(tmp_path: Path, dirs: int, dedicated: bool, seed: int) -> None:
    machine = Machine(tmp_path, dirs=dirs, dedicated=dedicated)
    random = Random(seed)
    machine.start()
    movable = [path for path in machine.log_dirs if path != machine.metadata][: dirs - 1]
    away: set[Path] = set()
    for _ in range(15):
        for path in movable:
            if random.random() < 0.3:
                (machine.mount if path in away else machine.unmount)(path)
                away ^= {path}
        until = random.choice([REGISTERED, REGISTERED, LIVES_WRITTEN, SETTLED])
        assert machine.start(until) == away
    for path in away:
        machine.mount(path)
    assert machine.start() == set()


@several
@pytest.mark.parametrize("lives", [[REGISTERED], [LIVES_WRITTEN, REGISTERED], [REGISTERED] * 3])
def test_an_older_log_directory_is_offline_until_the_newest_is_back(
    tmp_path: Path, dirs: int, dedicated: bool, lives: list[str]
) -> None:
    machine = machine_at(tmp_path, dirs, dedicated)
    data = machine.log_dirs[-1]
    copy = machine.copy(data)
    for until in lives:
        assert machine.start(until) == set()
    newest = machine.copy(data)
    machine.put_back(data, copy)
    assert machine.start(SETTLED) == {data}
    assert machine.start(LIVES_WRITTEN) == {data}
    machine.put_back(data, newest)
    assert machine.start() == set()
    assert machine.start() == set()


@several
@pytest.mark.parametrize("starts", [1, 3])
def test_a_directory_that_was_away_comes_back_as_it_was_or_not_at_all(
    tmp_path: Path, dirs: int, dedicated: bool, starts: int
) -> None:
    machine = machine_at(tmp_path, dirs, dedicated)
    data = machine.log_dirs[-1]
    copy = machine.copy(data)
    assert machine.start() == set()
    machine.unmount(data)
    for _ in range(starts):
        assert machine.start() == {data}
    machine.mount(data)
    newest = machine.copy(data)
    machine.put_back(data, copy)
    assert machine.start() == {data}
    assert machine.start() == {data}
    machine.put_back(data, newest)
    assert machine.start() == set()


@several
@pytest.mark.parametrize("starts", [1, 2, 5])
def test_an_older_metadata_directory_is_refused_at_every_start(
    tmp_path: Path, dirs: int, dedicated: bool, starts: int
) -> None:
    """Also one start later: no refused start writes anything that makes the copy look newer."""
    machine = machine_at(tmp_path, dirs, dedicated)
    copy = machine.copy(machine.metadata)
    for _ in range(starts):
        machine.start()
    newest = machine.copy(machine.metadata)
    machine.put_back(machine.metadata, copy)
    before = {path.name: path.read_bytes() for path in machine.metadata.rglob("*.log")}
    for _ in range(10):
        with pytest.raises(DirectoryError, match="the metadata directory is an older copy"):
            machine.start()
    assert {p.name: p.read_bytes() for p in machine.metadata.rglob("*.log")} == before
    machine.put_back(machine.metadata, newest)
    assert machine.start() == set()


def test_an_older_metadata_directory_is_refused_by_the_only_log_directory(
    tmp_path: Path,
) -> None:
    machine = machine_at(tmp_path, 1, True)
    copy = machine.copy(machine.metadata)
    machine.start()
    machine.put_back(machine.metadata, copy)
    with pytest.raises(DirectoryError, match=str(machine.log_dirs[0])):
        machine.start()


def test_an_older_copy_of_the_only_log_directory_ends_the_start(
    tmp_path: Path,
) -> None:
    """Which of the two is the older one cannot be told, and no other directory works."""
    machine = machine_at(tmp_path, 1, True)
    copy = machine.copy(machine.log_dirs[0])
    machine.start()
    machine.put_back(machine.log_dirs[0], copy)
    with pytest.raises(DirectoryError, match="directories accept"):
        machine.start()


def test_a_directory_that_the_older_metadata_do_not_know_gives_them_away(tmp_path: Path) -> None:
    machine = machine_at(tmp_path, 1, False)
    copy = machine.copy(machine.metadata)
    machine.log_dirs.append(tmp_path / "data-new")
    assert machine.start() == set()
    machine.put_back(machine.metadata, copy)
    with pytest.raises(DirectoryError, match="data-new was written when it ended at"):
        machine.start()


@several
@pytest.mark.parametrize("content", [None, b"", b"tidemark-lives 1\n"])
def test_a_log_directory_whose_lives_are_lost_is_offline(
    tmp_path: Path, dirs: int, dedicated: bool, content: bytes | None
) -> None:
    machine = machine_at(tmp_path, dirs, dedicated)
    file = machine.log_dirs[-1] / INCARNATION_HISTORY
    kept = file.read_bytes()
    file.unlink() if content is None else file.write_bytes(content)
    assert machine.start(SETTLED) == {machine.log_dirs[-1]}
    file.write_bytes(kept)
    assert machine.start() == set()


@pytest.mark.parametrize("dirs", [1, 2])
@pytest.mark.parametrize("content", [None, b"", b"tidemark-lives 1\n"])
def test_lost_lives_of_the_metadata_directory_cost_nothing(
    tmp_path: Path, dirs: int, content: bytes | None
) -> None:
    machine = machine_at(tmp_path, dirs, False)
    file = machine.metadata / INCARNATION_HISTORY
    file.unlink() if content is None else file.write_bytes(content)
    assert machine.start() == set()
    assert len(read_incarnations(Disk(), machine.metadata)) == 2


def test_unreadable_lives_of_the_metadata_directory_end_the_start(tmp_path: Path) -> None:
    machine = machine_at(tmp_path, 2, False)
    (machine.metadata / INCARNATION_HISTORY).unlink()
    (machine.metadata / INCARNATION_HISTORY).mkdir()
    with pytest.raises(DirectoryError, match=INCARNATION_HISTORY):
        machine.start()


@pytest.mark.parametrize("dedicated", [True, False])
def test_a_changed_identity_of_a_directory_is_noticed(tmp_path: Path, dedicated: bool) -> None:
    """Under another id its replicas would be missed, and new ones begin beside them."""
    machine = machine_at(tmp_path, 2, dedicated)
    data = machine.log_dirs[-1]
    kept = (data / META_PROPERTIES).read_bytes()
    for position in range(len(kept)):
        changed = bytearray(kept)
        changed[position] ^= 1
        (data / META_PROPERTIES).write_bytes(changed)
        assert machine.start(SETTLED) == {data}
    (data / META_PROPERTIES).write_bytes(kept)
    assert machine.start() == set()


@pytest.mark.parametrize("dedicated", [True, False])
def test_a_changed_identity_of_the_metadata_directory_ends_the_start(
    tmp_path: Path, dedicated: bool
) -> None:
    machine = machine_at(tmp_path, 2, dedicated)
    kept = (machine.metadata / META_PROPERTIES).read_bytes()
    for position in range(len(kept)):
        changed = bytearray(kept)
        changed[position] ^= 1
        (machine.metadata / META_PROPERTIES).write_bytes(changed)
        with pytest.raises((DirectoryError, QuorumConfigError)):
            machine.start(SETTLED)
    (machine.metadata / META_PROPERTIES).write_bytes(kept)
    assert machine.start() == set()


# -- the file


def life(number: int, end: int = 0) -> Incarnation:
    return Incarnation(bytes([number]) * 16, end)


def test_the_file_says_what_it_was_told_and_no_damage_is_read() -> None:
    lives = [life(1, 5), life(2, 4711)]
    data = dump_incarnations(lives)
    assert parse_incarnations(data) == lives
    for position in range(len(data)):
        if position < len(data) - 1:  # without the last newline nothing is lost
            with pytest.raises(CorruptFileError):
                parse_incarnations(data[:position])
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                assert parse_incarnations(bytes(flipped)) == lives
            except CorruptFileError:
                continue


@pytest.mark.parametrize(
    ("found", "present", "expected"),
    [
        ([], None, [9]),
        ([], 1, [1, 9]),
        ([1], 1, [1, 9]),
        ([1, 2], 2, [2, 9]),  # 1 came before: it goes
        ([1, 2], 1, [1, 2, 9]),  # 2 was killed before it registered
        ([2, 3], 5, [5, 2, 3, 9]),  # was not here in life 5
        ([1, 2], None, [1, 2, 9]),
    ],
)
def test_only_what_came_before_the_present_life_goes(
    found: list[int], present: int | None, expected: list[int]
) -> None:
    after = next_incarnations(
        [life(number) for number in found], present and bytes([present]) * 16, life(9, 100)
    )
    assert [one.incarnation_id[0] for one in after] == expected


@pytest.mark.parametrize("downgraded", [True, False])
def test_a_directory_absent_after_a_downgrade_may_have_stale_sidecars(
    downgraded: bool,
) -> None:
    """Apache Kafka wrote its files, and the start that would have renewed them went without."""
    here, away = Path("/here"), Path("/away")
    ids = {here: b"h" * 16, away: b"a" * 16}
    image = cluster_of()

    def life(number: int, *directories: Path, keeps: bool) -> None:
        nonlocal image
        log_dirs = tuple(ids[path] for path in directories)
        registration = Registration(
            1, bytes([number]) * 16, (), {}, log_dirs=log_dirs, keeps_directories=keeps
        )
        image = apply(image, register_broker(image, registration).records)

    life(1, here, away, keeps=True)
    topic = make("TopicRecord", name="t", topic_id=b"t" * 16)
    partition = make(
        "PartitionRecord",
        2,
        partition_id=0,
        topic_id=b"t" * 16,
        replicas=[1],
        isr=[1],
        leader=-1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[ids[away]],
    )
    image = apply(image, [topic, partition])
    life(2, here, away, keeps=not downgraded)
    life(3, here, keeps=True)
    assert without_sidecars(image, 1, ids) == ({away} if downgraded else set())
    life(4, here, away, keeps=True)
    assert without_sidecars(image, 1, ids) == set()


@pytest.mark.parametrize(
    ("noted", "named", "mark_of", "is_renewed"),
    [
        (1, (1, 2), None, True),
        (1, (1, 2, 3), None, True),
        (1, (2, 3), None, False),
        (1, (2, 1, 3), None, False),
        (1, (1, 3), None, False),
        (None, (1, 2), None, False),
        (None, (1, 2), 2, True),
        (None, (1, 2), 1, False),
    ],
    ids=[
        "killed before it noted itself",
        "the next one was killed, too",
        "the noted life is not named",
        "another registered before the noted one",
        "the registered life never was here",
        "the machine was off since",
        "stopped in good order, and the machine was off since",
        "the mark is of an older stop",
    ],
)
def test_a_start_notes_the_registered_life_where_nothing_was_lost_since(
    tmp_path: Path,
    noted: int | None,
    named: tuple[int, ...],
    mark_of: int | None,
    is_renewed: bool,
) -> None:
    """Else a life that is killed within its start makes the next one count as unclean."""
    image = started(started(cluster_of(), 1, life=1), 1, life=2)
    epochs = {1: image.brokers[1].epoch - 2, 2: image.brokers[1].epoch}
    (tmp_path / INCARNATION_HISTORY).write_bytes(
        dump_incarnations([Incarnation(bytes([one]) * 16, 9) for one in named])
    )
    before = LogDir(tmp_path, Disk())
    if noted is not None:
        before.write_running_incarnation(epochs[noted], bytes([noted]) * 16)
    if mark_of is not None:
        before.write_clean_mark(epochs[mark_of])
    directory = LogDir(tmp_path, Disk())
    directory.read_running_incarnation()
    directory.read_clean_mark()
    renew_running_incarnation(directory, image, 1)
    after = LogDir(tmp_path, Disk())
    after.read_running_incarnation()
    expected = 2 if is_renewed else noted
    found = after.same_boot_epoch, after.same_boot_incarnation
    assert found == ((-1, None) if expected is None else (epochs[expected], bytes([expected]) * 16))
