"""`tidemark split` on files: what it makes, what it refuses, and what a crash leaves of it."""

import asyncio
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from broker import app
from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.listeners import parse_voters
from broker.config.properties import parse
from broker.node.directories import DirectoryError
from broker.node.incarnation_history import Incarnation, dump_incarnations
from broker.node.metadata_log import open_metadata_node
from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from local_log.manager.log_dir import CLEAN_SHUTDOWN, INCARNATION_HISTORY
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.driver.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.errors import QuorumConfigError
from metadata_topic.quorum.node import MetadataNode, NodeIdentity
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.quorum.start.format import METADATA_DIRECTORY, SET_ASIDE_DIRECTORY
from metadata_topic.quorum.start.quorum_start import static_voter_set
from metadata_topic.quorum.start.recovery import read_directory, repair
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.messages import Node
from runtime.clock import SystemClock
from runtime.disk import Disk
from runtime.rng import SystemRng
from tests.support.brokers.process import free_dev_port
from tests.support.rounds import rounds
from tests.support.samples.command_line import CLUSTER, tidemark, write_config
from tests.support.sim.ports import simulated
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng
from tests.support.worlds.one_node import looped, sole_voter
from tidemark.dev.settings import PROPERTIES
from tidemark.node_files.log_directories import stopped
from tidemark.node_files.split import NOTE, Split, SplitError, split_node
from tidemark.node_files.split_properties import pages

pytestmark = pytest.mark.lasts(seconds=15)

NEW = "101@h1:9093,102@h2:9093,103@[::1]:9094"
STATIC = {"controller.quorum.bootstrap.servers": None, "controller.quorum.voters": "4@h:9093"}
BOTH = pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
STEP = rounds("TIDEMARK_SPLIT_STEP", quick=3, full=1)
OPERATIONS_MAX = 1_000
LAST = 8


def lone_node(root: Path, *, is_dynamic: bool = True, **changes: str | None) -> Path:
    """The properties of node 4, which has lived and was stopped."""
    root.mkdir(exist_ok=True)
    config = write_config(root, **(changes if is_dynamic else {**STATIC, **changes}))
    options = ("--standalone",) if is_dynamic else ()
    assert tidemark("format", "-c", config, "-t", CLUSTER, *options).exit_code == 0
    live(root, is_dynamic=is_dynamic)
    for name in ("one", "two"):
        (root / name / CLEAN_SHUTDOWN).touch()
    return config


def live(
    root: Path, life: int = 1, *, is_dynamic: bool = True, names: tuple[str, ...] = ("one", "two")
) -> None:
    """Elect the node, and let it register as broker and controller and make a topic."""
    metas = [parse_meta_properties((root / name / META_PROPERTIES).read_bytes()) for name in names]
    me, ids = metas[0].node_id, [meta.directory_id for meta in metas]
    assert ids[0] is not None
    ports = replace(looped(simulated(life)), disk=Disk())
    identity = NodeIdentity(node_id=me, cluster_id=metas[0].cluster_id, directory_id=ids[0])
    settings = sole_voter(node_id=me, static=not is_dynamic)

    def decide(_image: MetadataImage) -> ControllerResult[None]:
        topic_id = ports.rng.uuid()
        records = (
            make("RegisterBrokerRecord", 3, broker_id=me, incarnation_id=topic_id, log_dirs=ids),
            make("RegisterBrokerRecord", 3, broker_id=7, incarnation_id=topic_id),
            make("TopicRecord", name=f"t{life}", topic_id=topic_id),
            make("ConfigRecord", resource_type=2, resource_name=f"t{life}", name="a.b", value="7"),
            make("ProducerIdsRecord", broker_id=me, next_producer_id=5_000),
            make("NoOpRecord", removed_tiered_topics=[b"removed-topic-01"]),
        )
        return ControllerResult(records, None)

    async def lives() -> None:
        node = MetadataNode(root / names[0], identity, ports, settings, lambda _error: None)
        await node.begin()
        await node.submit(decide)
        await node.close()

    asyncio.run(lives())


def split(config: Path, into: Path, disk: Disk | None = None, **options: object) -> Split:
    values = {"controllers": NEW, **options}
    return split_node(
        BrokerConfig.load(config)[0], into=into, disk=disk or Disk(),
        clock=SystemClock(), rng=SystemRng(), **values,  # type: ignore[arg-type]
    )  # fmt: skip


def image_in(directory: Path) -> MetadataImage:
    files = SnapshotFiles(directory, Disk(), SystemRng(), cluster_id=CLUSTER)
    return read_directory(directory, files=files, disk=Disk()).loader.take()[0]


def epoch_of(directory: Path) -> int:
    return QuorumStateFile(directory, Disk()).read().epoch


def check_made(root: Path, into: Path) -> None:
    """Three controllers with all the node had, under an epoch above its own; a broker that waits.

    What is compared is read from the node's former metadata.
    """
    former = root / "one" / SET_ASIDE_DIRECTORY
    assert not (root / "one" / METADATA_DIRECTORY).exists()
    before, epochs = image_in(former), set()
    assert before.controllers.keys() == {4}
    for node_id in (101, 102, 103):
        home = into / f"controller-{node_id}"
        meta = parse_meta_properties((home / META_PROPERTIES).read_bytes())
        assert (meta.cluster_id, meta.node_id) == (CLUSTER, node_id)
        directory = home / METADATA_DIRECTORY
        (snapshot_id,) = SnapshotFiles(directory, Disk(), SystemRng()).ids()
        assert snapshot_id == (before.provenance.end_offset, epoch_of(former) + 1)
        assert QuorumStateFile(directory, Disk()).find() == ElectionState(snapshot_id.epoch)
        epochs.add(snapshot_id.epoch)
        after = image_in(directory)
        assert replace(after, provenance=before.provenance) == replace(before, controllers={})
    assert len(epochs) == 1
    names = [f"controller-{n}" for n in (101, 102, 103)]
    files = [f"{name}.properties" for name in [*names, "broker-4"]]
    assert sorted(one.name for one in into.iterdir()) == sorted([*names, *files])


@BOTH
def test_every_controller_begins_with_the_nodes_metadata(tmp_path: Path, is_dynamic: bool) -> None:
    config = lone_node(tmp_path, is_dynamic=is_dynamic)
    split(config, tmp_path / "new")
    check_made(tmp_path, tmp_path / "new")
    snapshots = []
    for node_id in (101, 102, 103):
        home = tmp_path / "new" / f"controller-{node_id}"
        meta = parse_meta_properties((home / META_PROPERTIES).read_bytes())
        files = SnapshotFiles(home / METADATA_DIRECTORY, Disk(), SystemRng())
        snapshot = files.read(files.ids()[0])
        assert snapshot.kraft_version == int(is_dynamic)
        if is_dynamic:
            assert snapshot.voters is not None
            voter = snapshot.voters.get(node_id)
            assert voter is not None
            assert voter.key.directory_id == meta.directory_id
        snapshots.append(snapshot.voters)
    assert len(set(snapshots)) == 1


def test_the_first_start_of_a_controller_warns_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    split(lone_node(tmp_path), tmp_path / "new")
    directory = tmp_path / "new" / "controller-101" / METADATA_DIRECTORY
    files = SnapshotFiles(directory, Disk(), SystemRng(), cluster_id=CLUSTER)
    found = read_directory(directory, files=files, disk=Disk())
    caplog.clear()
    with caplog.at_level("INFO"):
        opened = repair(
            found, files=files, config=MetadataLogConfig(), disk=Disk(), clock=SystemClock()
        )
    opened.close()
    assert "the log begins at a snapshot: offset=" in caplog.text
    assert {one.levelname for one in caplog.records} == {"INFO"}


@pytest.mark.parametrize("voted_in", [1, 9], ids=["the log is later", "the vote is later"])
def test_the_epoch_is_above_the_log_and_above_the_vote(tmp_path: Path, voted_in: int) -> None:
    """The node may have voted in an epoch of which its log has nothing, or have lost the vote."""
    config = lone_node(tmp_path, is_dynamic=False)
    live(tmp_path, life=2, is_dynamic=False)
    former = tmp_path / "one" / METADATA_DIRECTORY
    led_in = epoch_of(former)
    assert 1 < led_in < 9
    alone = static_voter_set((Node(4, "h", 9093),), "CONTROLLER")
    QuorumStateFile(former, Disk()).write(ElectionState(voted_in), kraft_version=0, voters=alone)
    split(config, tmp_path / "new")
    for node_id in (101, 102, 103):
        directory = tmp_path / "new" / f"controller-{node_id}" / METADATA_DIRECTORY
        assert epoch_of(directory) == max(led_in, voted_in) + 1


def entries(file: Path) -> dict[str, str]:
    assert file.stat().st_mode & 0o077 == 0, "the store's credentials may be in it"
    return parse(file.read_text())


def test_files_say_where_the_controllers_are_and_what_the_node_was_told(tmp_path: Path) -> None:
    told: dict[str, str | None] = {
        "metadata.log.dir": str(tmp_path / "one"),
        "num.partitions": "7",
        "advertised.listeners": "PLAINTEXT://b:9092,CONTROLLER://b:9093",
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        "rsm.config.dir": str(tmp_path / "store"),
        "rsm.config.secret": "  a=b\\ ",
        "tidemark.http.listener": "127.0.0.1:9464",
    }
    config = lone_node(tmp_path, is_dynamic=False, **told)
    config.write_text(config.read_text().replace("=  a=b\\", "=\\  a=b\\\\"))
    split(config, tmp_path / "new")
    one = entries(tmp_path / "new" / "controller-103.properties")
    assert one == {
        "process.roles": "controller",
        "node.id": "103",
        "listeners": "CONTROLLER://[::1]:9094",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": NEW,
        "log.dirs": str(tmp_path / "new" / "controller-103"),
        "num.partitions": "7",
        "remote.log.storage.system.enable": "true",
        "tidemark.http.listener": "127.0.0.1:9467",
    }
    secret = tmp_path / "new" / "cluster.secret"
    assert secret.stat().st_mode & 0o077 == 0
    before = parse(config.read_text())
    assert before["rsm.config.secret"] == "  a=b\\ "
    assert entries(tmp_path / "new" / "broker-4.properties") == before | {
        "process.roles": "broker",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners": "PLAINTEXT://b:9092",
        "controller.quorum.voters": NEW,
        "tidemark.cluster.secret.file": str(secret),
    }


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("", []),
        ("127.0.0.1:9090", ["127.0.0.1:9091", "127.0.0.1:9095", "127.0.0.1:9096"]),
        ("[::]:9464", ["[::]:9465", "[::]:9466", "[::]:9467"]),
        (":9464", [":9465", ":9466", ":9467"]),
        ("h:9464", ["h1:9465", "h2:9466", "[::1]:9467"]),
        ("127.0.0.1:9468", ["127.0.0.1:9470", "127.0.0.1:9471", "127.0.0.1:9472"]),
        ("h:65534", ["h1:65535", "h2:1024", "[::1]:1025"]),
        ("127.0.0.1:0", ["127.0.0.1:0"] * 3),
    ],
)
def test_controllers_have_pages_as_the_node_has(
    tmp_path: Path, listener: str, expected: list[str]
) -> None:
    """The node listens on 9092, 9093 and 9469, the controllers on 9093 and 9094."""
    control = {
        "tidemark__control__listener": "127.0.0.1:9469",
        "tidemark__control__token": "0123456789abcdef",
    }
    config = BrokerConfig.load(
        write_config(tmp_path, tidemark__http__listener=listener, **control)
    )[0]
    found = pages(config, parse_voters("--controllers", NEW.split(",")))
    assert list(found.values()) == expected


def test_pages_of_controllers_leave_the_port_of_the_tiers(tmp_path: Path) -> None:
    told = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        "rsm.config.dir": str(tmp_path / "store"),
        "tidemark.cluster.secret.file": str(tmp_path / "secret"),
        "tidemark.http.listener": "127.0.0.1:9464",
        "tidemark.tier.listener": "127.0.0.1:9465",
    }
    config = BrokerConfig.load(write_config(tmp_path, **told))[0]
    found = pages(config, parse_voters("--controllers", NEW.split(",")))
    assert list(found.values()) == ["127.0.0.1:9466", "127.0.0.1:9467", "127.0.0.1:9468"]


def test_a_development_node_is_split_by_the_file_that_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "run", lambda _config, **_: 0)
    told = ("--override", "num.partitions=7")
    port = free_dev_port()
    assert tidemark("dev", "--data", tmp_path, "--port", port, *told).exit_code == 0
    live(tmp_path, names=("logs",))
    (tmp_path / "logs" / CLEAN_SHUTDOWN).touch()
    config, into = tmp_path / PROPERTIES, tmp_path / "new"
    done = tidemark("split", "--config", config, "--controllers", NEW, "--into", into)
    assert done.exit_code == 0, done.output
    said = entries(into / "broker-1.properties")
    assert (said["log.dirs"], said["num.partitions"]) == (str(tmp_path / "logs"), "7")
    assert said["listeners"] == f"PLAINTEXT://127.0.0.1:{port}"
    for one, line in zip((101, 102, 103), range(port + 373, port + 376), strict=True):
        assert entries(into / f"controller-{one}.properties")["tidemark.http.listener"].endswith(
            f":{line}"
        )
        assert f"(tidemark.http.listener): 127.0.0.1:{line}\n" in done.output


def test_voters_in_the_log_are_found_by_their_addresses(tmp_path: Path) -> None:
    config = lone_node(tmp_path, is_dynamic=False)
    split(config, tmp_path / "new", is_dynamic=True)
    for name in ("controller-101", "broker-4"):
        said = entries(tmp_path / "new" / f"{name}.properties")
        assert said["controller.quorum.bootstrap.servers"] == "h1:9093,h2:9093,[::1]:9094"
        assert "controller.quorum.voters" not in said


# -- what is refused ----------------------------------------------------------------------------


def unclean(root: Path) -> None:
    (root / "two" / CLEAN_SHUTDOWN).unlink()


def half_copied(root: Path) -> None:
    Disk().remove_tree(root / "two")


def put_back(root: Path) -> None:
    """The metadata are an older copy than the other directory."""
    (root / "two" / INCARNATION_HISTORY).write_bytes(
        dump_incarnations([Incarnation(b"l" * 16, 1_000_000)])
    )


def emptied(root: Path) -> None:
    half_copied(root)
    (root / "two").mkdir()
    (root / "two" / "t-0").mkdir()


@pytest.mark.parametrize(
    ("change", "options", "error", "words"),
    [
        (unclean, {}, SplitError, ["not stopped cleanly", "two/.kafka_cleanshutdown", "SIGTERM"]),
        (half_copied, {}, SplitError, ["two cannot be used", "not formatted"]),
        (emptied, {}, SplitError, ["two cannot be used", "no meta.properties"]),
        (put_back, {}, DirectoryError, ["older copy"]),
        (None, {"controllers": "101@h:1,7@h:2"}, SplitError, ["7 is the id of a broker"]),
        (None, {"controllers": "101@h:1,4@h:2"}, SplitError, ["4 is the id of a broker"]),
        (None, {"controllers": "101@h:1,102@h:1"}, ConfigError, ["a port of its own"]),
        (None, {"controllers": "101@h:0"}, ConfigError, ["a port of its own", "above 0"]),
        (None, {"controllers": "101@h:1,101@h:2"}, ConfigError, ["101 appears twice"]),
        (None, {"controllers": ""}, ConfigError, ["id@host:port"]),
        (lambda root: (root / "new").mkdir(), {}, SplitError, ["new is there already"]),
    ],
)
def test_what_cannot_be_split_is_left_as_it_is(
    tmp_path: Path,
    change: Callable[[Path], None] | None,
    options: dict[str, object],
    error: type[Exception],
    words: list[str],
) -> None:
    config = lone_node(tmp_path)
    if change is not None:
        change(tmp_path)
    before = names_below(tmp_path)
    with pytest.raises(error) as raised:
        split(config, tmp_path / "new", **options)
    for word in words:
        assert word in str(raised.value)
    assert names_below(tmp_path) == before


def names_below(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.name != ".lock"}


def test_a_directory_that_followed_another_controller_is_not_split(tmp_path: Path) -> None:
    config = lone_node(tmp_path, is_dynamic=False)
    directory = tmp_path / "one" / METADATA_DIRECTORY
    alone = static_voter_set((Node(4, "h", 9093),), "CONTROLLER")
    QuorumStateFile(directory, Disk()).write(ElectionState(9, 2), kraft_version=0, voters=alone)
    with pytest.raises(QuorumConfigError, match="followed others in epoch 9"):
        split(config, tmp_path / "new")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"controller.quorum.voters": "4@h:9093,5@h:9094"}, [r"\[4, 5\]", "the only voter"]),
        (
            {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:9093"},
            ["process.roles=controller", "broker and controller"],
        ),
    ],
)
def test_what_is_no_lone_combined_node_is_refused(
    tmp_path: Path, changes: dict[str, str], words: list[str]
) -> None:
    lone_node(tmp_path, is_dynamic=False)
    config = write_config(tmp_path, **{**STATIC, **changes})
    with pytest.raises(SplitError) as raised:
        split(config, tmp_path / "new")
    for word in words:
        assert re.search(word, str(raised.value))
    assert (tmp_path / "one" / METADATA_DIRECTORY).exists()


def test_a_node_that_never_lived_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    assert tidemark("format", "-c", config, "--standalone").exit_code == 0
    for name in ("one", "two"):
        (tmp_path / name / CLEAN_SHUTDOWN).touch()
    with pytest.raises(SplitError, match="never started"):
        split(config, tmp_path / "new")


def test_what_is_made_does_not_lie_in_a_log_directory(tmp_path: Path) -> None:
    config = lone_node(tmp_path)
    with pytest.raises(SplitError, match="in the log directory"):
        split(config, tmp_path / "two" / "new")


# -- again, and after a crash -------------------------------------------------------------------


def test_a_second_call_changes_nothing_and_another_place_is_refused(
    tmp_path: Path,
) -> None:
    config, into = lone_node(tmp_path), tmp_path / "new"
    done = split(config, into)
    assert (done.is_dynamic, done.other_brokers) == (True, (7,))
    before = names_below(tmp_path)
    assert split(config, into) == done
    for place, controllers in ((tmp_path / "other", NEW), (into, "101@h:1,104@h:2")):
        with pytest.raises(SplitError, match="was split before"):
            split(config, place, controllers=controllers)
    assert names_below(tmp_path) == before
    check_made(tmp_path, into)


def test_an_emptied_directory_keeps_the_former_properties_from_starting(tmp_path: Path) -> None:
    """The broker's own copy of the metadata log could be led alone where its vote file is lost."""
    config = lone_node(tmp_path, is_dynamic=False)
    split(config, tmp_path / "new")
    aside = tmp_path / "one" / SET_ASIDE_DIRECTORY
    Disk().remove_tree(aside)
    aside.mkdir()
    own = tmp_path / "one" / METADATA_DIRECTORY
    shutil.copytree(tmp_path / "new" / "controller-101" / METADATA_DIRECTORY, own)
    (own / "quorum-state").unlink()
    refuses_the_node(config)


class Interrupted(Disk):
    """The command ends before the node loses its votes."""

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        if source.name == METADATA_DIRECTORY:
            raise InterruptedError
        super().rename(source, target, durable=durable)


def test_an_attempt_that_was_given_up_is_not_finished_after_another(tmp_path: Path) -> None:
    """The cluster of the other one lives on; these controllers are a copy of what it began with."""
    config, first, second = lone_node(tmp_path), tmp_path / "first", tmp_path / "second"
    with pytest.raises(InterruptedError):
        split(config, first, Interrupted())
    split(config, second)
    with pytest.raises(SplitError, match=f"--into {second} --controllers {re.escape(NEW)}"):
        split(config, first)
    assert not first.exists()
    (tmp_path / "one" / SET_ASIDE_DIRECTORY / NOTE).unlink()
    with pytest.raises(SplitError, match="does not say which attempt"):
        split(config, first)
    assert not first.exists()


def test_a_power_cut_after_the_end_takes_nothing_back(tmp_path: Path) -> None:
    lone_node(tmp_path / "whole")
    for seed in range(6):  # what is not durable may be there by chance
        root = tmp_path / str(seed)
        config = copied(tmp_path / "whole", root)
        disk = PowerCutDisk(root, SeededRng(seed))
        split(config, root / "new", disk)
        disk.cut()
        check_made(root, root / "new")


def test_the_way_back_is_one_name(tmp_path: Path) -> None:
    config, into = lone_node(tmp_path), tmp_path / "new"
    split(config, into)
    Disk().remove_tree(into)
    (tmp_path / "one" / SET_ASIDE_DIRECTORY).rename(tmp_path / "one" / METADATA_DIRECTORY)
    live(tmp_path, life=2)
    split(config, into)
    assert "t2" in image_in(tmp_path / "one" / SET_ASIDE_DIRECTORY).topics_by_name
    check_made(tmp_path, into)


@pytest.mark.rounds(seconds=60)
@pytest.mark.parametrize("kills", [True, False], ids=["killed", "power cut"])
def test_after_a_crash_at_any_step_one_side_starts_and_a_repeat_completes(
    tmp_path: Path, kills: bool
) -> None:
    """Never can both the node and the new cluster start: the broker would live twice."""
    seen: set[tuple[bool, bool]] = set()
    lone_node(tmp_path / "whole")
    count = operations_of_a_split(tmp_path / "whole", tmp_path / "counted")
    # The last ones are those of both renames.
    for operation in (*range(1, count - LAST, STEP), *range(count - LAST, count + 1)):
        root = tmp_path / str(operation)
        config, into = copied(tmp_path / "whole", root), root / "new"
        disk = PowerCutDisk(root, SeededRng(operation), operation, kills=kills)
        with suppress(PowerCutError):
            split(config, into, disk)
        assert disk.is_off
        state = can_start(root, into)
        assert state != (True, True), operation
        if not state[0]:
            refuses_the_node(config)
        seen.add(state)
        split(config, into)
        check_made(root, into)
        shutil.rmtree(root)
    assert seen >= {(True, False), (False, False)}
    assert (False, True) in seen or not kills, "after a power cut the last name may be lost"


def copied(whole: Path, root: Path) -> Path:
    shutil.copytree(whole, root)
    return write_config(root)


def operations_of_a_split(whole: Path, root: Path) -> int:
    config = copied(whole, root)
    disk = PowerCutDisk(root, SeededRng(0), OPERATIONS_MAX)
    split(config, root / "new", disk)
    assert disk._left is not None
    return OPERATIONS_MAX - disk._left


def can_start(root: Path, into: Path) -> tuple[bool, bool]:
    """Whether the node can as what it was, and whether a new controller can."""
    node = (root / "one" / METADATA_DIRECTORY).exists()
    assert node is not (root / "one" / SET_ASIDE_DIRECTORY).exists()
    return node, into.exists()


def refuses_the_node(file: Path) -> None:
    """The config of the former node starts nothing."""
    config = BrokerConfig.load(file)[0]
    ports = replace(simulated(1), disk=Disk())
    with (
        stopped(config, Disk()) as directories,
        pytest.raises(QuorumConfigError, match="made it a broker"),
    ):
        open_metadata_node(config, directories, ports, lambda _error: None)
