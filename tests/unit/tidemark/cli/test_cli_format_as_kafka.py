"""`tidemark format` beside Kafka's storage tool: the same calls, files and refusals.

That the files are the same byte for byte with the same times and ids: `test_metadata_format.py`.
What Kafka did lies in `tests/golden/raft`, recorded by `tests.support.raft_answers.record_formats`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from metadata_topic.quorum.snapshot.snapshots import SnapshotId, read_snapshot
from metadata_topic.quorum.start.format import METADATA_DIRECTORY
from metadata_topic.raft.voters import VoterEndpoint, VoterSet
from tests.support.raft_answers.record_formats import FOLDER, properties
from tests.support.samples.command_line import files_below, tidemark

CASES = [json.loads(line) for line in (FOLDER / "formats.jsonl").read_text().splitlines()]
CHECKPOINT = f"{METADATA_DIRECTORY}/{SnapshotId(0, 0).file_name}"

DIFFERS = {
    "broker-initial": "a broker in the list would hold a vote that it never gives",
    "controller-same-directory-twice": "a copied directory id would count as the other voter",
    "controller-no-host": "nobody could reach that voter",
    "controller-port-0": "nobody could reach that voter",
    "controller-zero-directory": "zero means: directory not known",
}
"""Calls that Kafka takes and we refuse."""
WORDS = {
    "exclude each other": ("standalone-and", "initial-and-no"),
    "controller.quorum.voters": ("static-standalone", "static-initial", "-nothing"),
    "process.roles=broker": ("broker-standalone", "broker-initial"),
    "names no controller": ("no-voter",),
    "ID@HOST:PORT:DIRECTORY": (
        *("no-directory", "no-id", "no-port", "port-too-large", "ipv6-without"),
        *("short-directory", "id-is-no-number", "zero-directory"),
    ),
    "the same id": ("same-id-twice",),
    "the same directory id": ("same-directory-twice",),
    "host and a port": ("no-host", "port-0"),
}
"""What a refusal says, by part of the case's name; the first that fits counts."""


def config_file(tmp_path: Path, case: dict[str, Any]) -> Path:
    path = tmp_path / "server.properties"
    lines = properties(case["kind"], tmp_path / "logs")
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return path


def call(tmp_path: Path, case: dict[str, Any]) -> Any:
    return tidemark(
        "format",
        "-t",
        "tidemarkPeerClusterId0",
        "-c",
        config_file(tmp_path, case),
        *case["options"],
    )


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_what_kafka_takes_is_taken_and_what_it_refuses_is_refused(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    done = call(tmp_path, case)
    refused = case["exit"] != 0 or case["case"] in DIFFERS
    assert (done.exit_code != 0) == refused, done.output
    if refused:
        said = next(w for w, parts in WORDS.items() if any(p in case["case"] for p in parts))
        assert said in done.stderr
        assert files_below(tmp_path) == ["server.properties"]
    else:
        assert files_below(tmp_path / "logs") == case["files"]


SAME = [c for c in CASES if c["exit"] == 0 and c["case"] not in DIFFERS]


@pytest.mark.parametrize("case", SAME, ids=[case["case"] for case in SAME])
def test_identity_and_voters_are_those_of_kafka(tmp_path: Path, case: dict[str, Any]) -> None:
    assert call(tmp_path, case).exit_code == 0
    theirs, ours = FOLDER / "formatted" / case["case"], tmp_path / "logs"
    for name in case["files"]:
        if name == META_PROPERTIES:
            mine, kafkas = (parse_meta_properties((d / name).read_bytes()) for d in (ours, theirs))
            assert (mine.cluster_id, mine.node_id) == (kafkas.cluster_id, kafkas.node_id)
            if "Formatting dynamic metadata voter directory" in str(case["said"]):
                is_given = "--initial-controllers" in case["options"]
                assert (mine.directory_id == kafkas.directory_id) == is_given
        elif name == CHECKPOINT:
            mine, kafkas = (read_snapshot((d / name).read_bytes()) for d in (ours, theirs))
            assert mine.kraft_version == kafkas.kraft_version == 1
            assert mine.voters is not None
            assert kafkas.voters is not None
            is_same = "--standalone" not in case["options"]  # the directory id is random there
            assert (mine.voters == kafkas.voters) == is_same
            assert endpoints(mine.voters) == endpoints(kafkas.voters)


def endpoints(voters: VoterSet) -> list[tuple[VoterEndpoint, ...]]:
    return [voter.endpoints for voter in voters.voters]


def test_a_broker_draws_no_cluster_of_its_own(tmp_path: Path) -> None:
    """It joins one: an id that no controller has would be found only at its start."""
    path = config_file(tmp_path, {"kind": "broker"})
    done = tidemark("format", "-c", path)
    assert done.exit_code != 0
    assert "--cluster-id=ID" in done.stderr
    assert files_below(tmp_path) == ["server.properties"]
    assert tidemark("format", "-c", path, "-t", "tidemarkPeerClusterId0").exit_code == 0
