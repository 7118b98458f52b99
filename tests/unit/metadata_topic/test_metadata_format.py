import json
from pathlib import Path

import pytest

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.records.batch import iter_batches
from metadata_topic.quorum.snapshot.snapshots import SnapshotId, read_snapshot
from metadata_topic.quorum.start.format import (
    BOOTSTRAP_FILE,
    METADATA_DIRECTORY,
    AlreadyFormattedError,
    FormatPlan,
    NotFormattedError,
    format_directory,
    read_bootstrap,
)
from metadata_topic.raft.voters import VoterEndpoint
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng
from tidemark.node_files.initial_controllers import parse_initial_controllers

FORMATTED = Path(__file__).parents[2] / "golden/cluster-metadata/formatted"
RECORDED = Path(__file__).parents[2] / "golden/raft"
STANDALONE = FORMATTED / "standalone-transaction.version-1"
CHECKPOINT = SnapshotId(0, 0).file_name


class ScriptedClock(ManualClock):
    """Tells given times, one after the other."""

    def __init__(self, times: list[int]) -> None:
        super().__init__()
        self._times = iter(times)

    def wall_ms(self) -> int:
        return next(self._times)


def batch_times(path: Path) -> list[int]:
    return [header.base_timestamp for _, header in iter_batches(path.read_bytes())]


def test_a_standalone_format_gives_the_files_of_kafkas_tool(tmp_path: Path) -> None:
    bootstrap = read_snapshot((STANDALONE / BOOTSTRAP_FILE).read_bytes()).records
    voters_file = STANDALONE / METADATA_DIRECTORY / CHECKPOINT
    meta = parse_meta_properties((STANDALONE / META_PROPERTIES).read_bytes())
    assert meta.directory_id is not None
    contained = read_snapshot(voters_file.read_bytes()).last_contained_timestamp_ms
    times = [*batch_times(STANDALONE / BOOTSTRAP_FILE), contained, *batch_times(voters_file)]
    features = {
        r.value.name: r.value.feature_level for r in bootstrap if r.name == "FeatureLevelRecord"
    }
    plan = FormatPlan(
        meta.cluster_id,
        meta.node_id,
        (tmp_path,),
        tmp_path,
        VoterEndpoint("CONTROLLER", "127.0.0.1", 29093),
        features,
        tuple(r for r in bootstrap if r.name == "UserScramCredentialRecord"),
        {tmp_path: meta.directory_id},
    )
    format_directory(plan, disk=Disk(), clock=ScriptedClock(times), rng=SeededRng(1))
    for name in (BOOTSTRAP_FILE, f"{METADATA_DIRECTORY}/{CHECKPOINT}"):
        assert (tmp_path / name).read_bytes() == (STANDALONE / name).read_bytes(), name
    assert parse_meta_properties((tmp_path / META_PROPERTIES).read_bytes()) == meta


@pytest.mark.parametrize("name", ["initial-controllers", "broker-with-scram"])
def test_bootstrap_files_of_other_formats_are_the_same_bytes(name: str, tmp_path: Path) -> None:
    theirs = FORMATTED / name / BOOTSTRAP_FILE
    records = read_snapshot(theirs.read_bytes()).records
    features = {
        r.value.name: r.value.feature_level for r in records if r.name == "FeatureLevelRecord"
    }
    plan = FormatPlan(
        "c",
        1,
        (tmp_path,),
        tmp_path,
        features=features,
        more_records=tuple(r for r in records if r.name != "FeatureLevelRecord"),
    )
    clock = ScriptedClock(batch_times(theirs))
    format_directory(plan, disk=Disk(), clock=clock, rng=SeededRng(1))
    assert (tmp_path / BOOTSTRAP_FILE).read_bytes() == theirs.read_bytes()


def without_comments(path: Path) -> bytes:
    """A file of Kafka's tool; the properties without the time of their writing."""
    if path.name != META_PROPERTIES:
        return path.read_bytes()
    lines = path.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"#"))


def kafkas_options(case: str) -> list[str]:
    rows = [json.loads(line) for line in (RECORDED / "formats.jsonl").read_text().splitlines()]
    return next(list(row["options"]) for row in rows if row["case"] == case)


@pytest.mark.parametrize(
    "case",
    [
        *("controller-standalone", "controller-initial", "controller-outside", "controller-alone"),
        *("controller-no-initial", "combined-initial", "combined-standalone"),
        *("static-nothing", "static-no-initial", "broker-nothing"),
    ],
)
def test_every_kind_of_node_gets_the_bytes_of_kafkas_tool(case: str, tmp_path: Path) -> None:
    theirs = RECORDED / "formatted" / case
    records = read_snapshot((theirs / BOOTSTRAP_FILE).read_bytes()).records
    meta = parse_meta_properties((theirs / META_PROPERTIES).read_bytes())
    assert meta.directory_id is not None
    files = sorted(str(p.relative_to(theirs)) for p in theirs.rglob("*") if p.is_file())
    times = batch_times(theirs / BOOTSTRAP_FILE)
    voters_file = theirs / METADATA_DIRECTORY / CHECKPOINT
    if voters_file.exists():
        contained = read_snapshot(voters_file.read_bytes()).last_contained_timestamp_ms
        times += [contained, *batch_times(voters_file)]
    options = kafkas_options(case)
    listener = VoterEndpoint("CONTROLLER", "127.0.0.1", 19093)
    voters = parse_initial_controllers(options[1], "CONTROLLER") if options[1:] else None
    is_voter = voters is not None and meta.node_id in voters.ids
    plan = FormatPlan(
        meta.cluster_id,
        meta.node_id,
        (tmp_path,),
        tmp_path,
        standalone=listener if "--standalone" in options else None,
        features={r.value.name: r.value.feature_level for r in records},
        # A voter of several takes its directory id out of the list.
        directory_ids={} if is_voter else {tmp_path: meta.directory_id},
        voters=voters,
    )
    ids = format_directory(plan, disk=Disk(), clock=ScriptedClock(times), rng=SeededRng(1))
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == files
    for name in files:
        assert (tmp_path / name).read_bytes() == without_comments(theirs / name), name
    assert ids == {tmp_path: meta.directory_id}


def plan_for(*directories: Path, standalone: bool = False) -> FormatPlan:
    endpoint = VoterEndpoint("CONTROLLER", "localhost", 9093) if standalone else None
    return FormatPlan("cluster", 1, directories, directories[0], endpoint)


def run(plan: FormatPlan) -> dict[Path, bytes]:
    return format_directory(plan, disk=Disk(), clock=ManualClock(), rng=SeededRng(3))


def test_every_log_directory_gets_its_own_id_and_only_one_the_voters(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    ids = run(plan_for(first, second, standalone=True))
    assert ids[first] != ids[second]
    assert (first / METADATA_DIRECTORY / CHECKPOINT).exists()
    assert not (second / METADATA_DIRECTORY).exists()
    for directory in (first, second):
        meta = parse_meta_properties((directory / META_PROPERTIES).read_bytes())
        assert (meta.cluster_id, meta.node_id, meta.version) == ("cluster", 1, 1)
        assert meta.directory_id == ids[directory]
        assert (directory / BOOTSTRAP_FILE).exists()


def test_static_voters_need_no_checkpoint(tmp_path: Path) -> None:
    run(plan_for(tmp_path))
    assert not (tmp_path / METADATA_DIRECTORY).exists()


def test_only_served_features_are_finalised(tmp_path: Path) -> None:
    run(plan_for(tmp_path))
    records = read_bootstrap(tmp_path, Disk())
    levels = [(r.value.name, r.value.feature_level) for r in records]
    assert levels == [("metadata.version", 30), ("eligible.leader.replicas.version", 1)]


def test_a_formatted_directory_is_left_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    run(plan_for(second))
    before = sorted(p.name for p in second.iterdir())
    with pytest.raises(AlreadyFormattedError, match=str(second)):
        run(plan_for(first, second))
    assert not first.exists()
    assert sorted(p.name for p in second.iterdir()) == before


def test_an_unformatted_directory_has_no_bootstrap_records(tmp_path: Path) -> None:
    with pytest.raises(NotFormattedError, match="bootstrap"):
        read_bootstrap(tmp_path, Disk())
