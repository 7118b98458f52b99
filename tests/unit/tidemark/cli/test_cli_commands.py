"""The command line as a user meets it: what it writes, what it refuses, what it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_protocol.files.meta_properties import parse_meta_properties
from kafka_protocol.wire.primitives import uuid_from_text
from pipeline.jobs import session
from pipeline.jobs.export import Exported
from tests.support.samples.command_line import CLUSTER, files_below, tidemark, write_config
from tidemark.commands.pipeline_export import done_text, ends_text
from tidemark.remote.options import NAMES_A_BROKER


def test_standalone_format_writes_identity_bootstrap_and_voters(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    result = tidemark("format", "--config", config, "--standalone", "--cluster-id", CLUSTER)
    assert result.exit_code == 0, result.output
    assert files_below(tmp_path) == [
        "one/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "one/bootstrap.checkpoint",
        "one/meta.properties",
        "server.properties",
        "two/bootstrap.checkpoint",
        "two/meta.properties",
    ]
    metas = [
        parse_meta_properties((tmp_path / name / "meta.properties").read_bytes())
        for name in ("one", "two")
    ]
    assert [(meta.cluster_id, meta.node_id) for meta in metas] == [(CLUSTER, 4)] * 2
    assert metas[0].directory_id != metas[1].directory_id


def test_without_a_cluster_id_a_random_one_is_made(tmp_path: Path) -> None:
    result = tidemark("format", "-c", write_config(tmp_path), "-s")
    assert result.exit_code == 0
    meta = parse_meta_properties((tmp_path / "one" / "meta.properties").read_bytes())
    assert len(uuid_from_text(meta.cluster_id)) == 16
    assert meta.cluster_id in result.stdout


def test_static_voters_need_no_option_and_get_no_voter_file(tmp_path: Path) -> None:
    config = write_config(tmp_path, controller__quorum__voters="4@127.0.0.1:9093")
    assert tidemark("format", "--config", config).exit_code == 0
    assert not (tmp_path / "one" / "__cluster_metadata-0").exists()


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, (), ["controller.quorum.voters", "--standalone"]),
        (
            {"controller.quorum.voters": "4@h:1"},
            ("-s",),
            ["--standalone", "controller.quorum.voters"],
        ),
        ({}, ("-s", "--cluster-id", "a b"), ["--cluster-id", "a b"]),
        ({"num.partitions": "none"}, ("-s",), ["num.partitions=none", "whole number"]),
        ({"node.id": None}, ("-s",), ["node.id", "required"]),
        ({}, ("-s", "--override", "nonsense"), ["--override=nonsense", "key=value"]),
    ],
)
def test_a_refused_format_says_why_and_writes_nothing(
    tmp_path: Path, changes: dict[str, str | None], options: tuple[str, ...], words: list[str]
) -> None:
    config = write_config(tmp_path, **changes)
    result = tidemark("format", "--config", config, *options)
    assert result.exit_code == 1
    for word in words:
        assert word in result.stderr
    assert result.stderr.count("\n") == 1
    assert files_below(tmp_path) == ["server.properties"]


def test_a_formatted_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    assert tidemark("format", "-c", config, "-s", "-t", CLUSTER).exit_code == 0
    before = {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)}
    result = tidemark("format", "-c", config, "-s", "-t", CLUSTER)
    assert result.exit_code == 1
    assert str(tmp_path / "one") in result.stderr
    assert "--ignore-formatted" in result.stderr
    assert {name: (tmp_path / name).read_bytes() for name in files_below(tmp_path)} == before


def test_ignore_formatted_formats_only_new_directories_of_the_same_cluster(tmp_path: Path) -> None:
    config = write_config(tmp_path, log__dirs=str(tmp_path / "one"))
    assert tidemark("format", "-c", config, "-s", "-t", CLUSTER).exit_code == 0
    before = (tmp_path / "one" / "meta.properties").read_bytes()
    config = write_config(tmp_path)
    result = tidemark("format", "-c", config, "-s", "--ignore-formatted")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "one" / "meta.properties").read_bytes() == before
    added = parse_meta_properties((tmp_path / "two" / "meta.properties").read_bytes())
    assert added.cluster_id == CLUSTER


def test_another_cluster_or_node_is_refused_with_both_values(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    assert tidemark("format", "-c", config, "-s", "-t", CLUSTER).exit_code == 0
    other = tidemark("format", "-c", config, "-s", "-g", "-t", "BBBBBBBBBBBBBBBBBBBBBQ")
    assert other.exit_code == 1
    assert CLUSTER in other.stderr
    assert "BBBBBBBBBBBBBBBBBBBBBQ" in other.stderr
    node = tidemark("format", "-c", config, "-s", "-g", "--override", "node.id=5")
    assert node.exit_code == 1
    assert "node.id=4" in node.stderr
    assert "node.id=5" in node.stderr


def test_a_wrong_value_at_start_is_one_message_and_exit_code_1(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    override = ["--override", "log.retention.ms=soon"]
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", "start", "--config", str(config), *override],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "tidemark: log.retention.ms=soon: must be a whole number from -9223372036854775808 to "
        "9223372036854775807\n"
    )
    assert files_below(tmp_path) == ["server.properties"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("no_such_package.module:Plugin", "cannot import no_such_package.module"),
        ("rsm_plugins.no_such:Plugin", "no such module"),
        ("no_such_module:Plugin", "with `export PYTHONPATH=DIRECTORY` it looks where"),
        ("org.example.TieredStorage", "`package.module:Class`"),
        ("rsm_plugins.local_fs", "`package.module:Class`"),
        ("../evil:Plugin", "`package.module:Class`"),
    ],
)
def test_k405_02_an_unknown_plugin_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, cause: str
) -> None:
    key = "remote.log.storage.manager.class.name"
    entries = {
        "remote.log.storage.system.enable": "true",
        key: name,
    }
    result = tidemark("format", "-s", "--config", write_config(tmp_path, **entries))
    assert result.exit_code == 1
    assert f"{key}={name}: " in result.stderr
    assert cause in result.stderr
    assert files_below(tmp_path) == ["server.properties"]


def test_k405_02_the_remote_tier_without_a_plugin_class_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, **{"remote.log.storage.system.enable": "true"})
    result = tidemark("start", "--config", config)
    assert result.exit_code == 1
    assert "remote.log.storage.manager.class.name: must name" in result.stderr
    assert files_below(tmp_path) == ["server.properties"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = tidemark("start", "--config", tmp_path / "nothing.properties")
    assert result.exit_code == 1
    assert str(tmp_path / "nothing.properties") in result.stderr


def test_help_lists_the_commands_without_loading_them() -> None:
    code = (
        "import sys; from tidemark.cli import cli\n"
        "try: cli(['--help'], prog_name='tidemark')\n"
        "except SystemExit: pass\n"
        "heavy = [m for m in ('asyncio', 'broker.app', 'confluent_kafka', 'rich') "
        "if m in sys.modules]\n"
        "print('loaded:', heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    for name in ("start", "format", "dev", "version"):
        assert f"\n  {name}" in done.stdout
    assert done.stdout.endswith("loaded: []\n")


def test_what_asks_a_cluster_loads_nothing_of_a_broker() -> None:
    """Some hundred settings and the plugins' loader would be a third of a short command."""
    code = (
        "import sys; from tidemark.cli import main\n"
        "sys.argv = ['tidemark', 'groups', 'list', '--bootstrap-server', '127.0.0.1:1']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import tidemark.commands.topics, tidemark.commands.configs\n"
        "heavy = ('broker.config.keys', 'rsm_plugins.loader', 'rich', 'confluent_kafka')\n"
        "print('loaded:', [m for m in heavy if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "loaded: []\n"
    assert done.stderr == f"tidemark: 127.0.0.1:1: Connection refused; {NAMES_A_BROKER}\n"


def test_the_version_is_printed() -> None:
    assert tidemark("version").output.startswith("tidemark ")
    assert tidemark("--version").output == tidemark("version").output


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("--bucket=/x", "--to=y", "--tail"), "--tail needs --bootstrap-server", 2),
        (("--bucket=/x",), "say where to export to: one of --to, --iceberg and --delta", 2),
        (("--bucket=/x", "--to=y", "--delta=z"), "one of --to, --iceberg and --delta", 2),
        (("--bucket=/x", "--to=y", "--topic-id=short"), "22 characters", 1),
        (
            ("--bucket=s3://x", "--to=y", "--storage-config=endpoint.ulr=http://h:1"),
            "no setting rsm.config.endpoint.ulr; did you mean rsm.config.endpoint.url?",
            1,
        ),
        (("--bucket=/x", "--to=y", "--value=json", "--schema=@/none"), "/none", 1),
        (("--bucket=/not/there", "--to=y"), "the store /not/there cannot be used", 1),
        (("--bucket=/x", "--to=y", *2 * ("--log-start=0=1",)), "given twice for partition 0", 2),
    ],
)
def test_an_export_that_cannot_be_starts_no_spark(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str, code: int
) -> None:
    monkeypatch.setattr(session, "spark_session", lambda *_: NoSession())
    done = tidemark("pipeline", "export", "orders", *arguments)
    assert done.exit_code == code
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--bucket=s3://x", "--storage-config=endpoint.ulr=http://h:1"),
            "rsm.config.endpoint.ulr;",
        ),
        (("--conf=x",), "must be key=value"),
        ((), "the Kafka client refuses a setting: no.such.setting"),
    ],
)
def test_a_verification_that_cannot_be_starts_no_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(session, "spark_session", lambda *_: NoSession())
    config = tmp_path / "client.properties"
    config.write_text("no.such.setting=1\n")
    place = ("--bootstrap-server=127.0.0.1:1", f"--command-config={config}")
    done = tidemark("pipeline", "verify", "orders", *place, *arguments)
    assert done.exit_code == 1
    assert words in done.stderr


class NoSession:
    """A session that may be asked for and does not start."""

    def __enter__(self) -> None:
        pytest.fail("Spark was started")

    def __exit__(self, *_: object) -> None: ...


def test_an_export_says_of_how_much_of_the_log_its_small_files_are_made() -> None:
    done = Exported(runs=1, files=2, rows=162_967, size_bytes=39_000, read_bytes=6_640_000)
    assert done_text("tides", done) == (
        "tides: 162967 records, 6.33 MiB of the log, are 38.1 KiB in 2 files; 1 commit"
    )


@pytest.mark.parametrize(
    ("ends", "only_brokers", "text"),
    [
        (
            {0: 23_558, 1: 46_801},
            {0: 24_442, 1: 5_199},
            "tides: exported are the offsets below 23558 of partition 0, 46801 of partition 1;"
            " 29641 offsets of 2 partitions are only on the brokers: --tail exports them, too",
        ),
        ({0: 7}, {}, "tides: exported are the offsets below 7 of partition 0"),
        (
            {},
            {3: 5},
            "tides: exported is nothing; 5 offsets of 1 partition are only on the brokers:"
            " --tail exports them, too",
        ),
    ],
)
def test_an_export_says_how_far_it_went_and_what_only_the_brokers_have(
    ends: dict[int, int], only_brokers: dict[int, int], text: str
) -> None:
    assert ends_text("tides", Exported(ends=ends, only_brokers=only_brokers)) == text


def test_ends_of_many_partitions_are_not_all_listed() -> None:
    done = Exported(ends=dict.fromkeys(range(100), 3))
    assert ends_text("tides", done).endswith(" 3 of partition 7, and ends of 92 more")


def test_format_draws_the_clusters_secret_once(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    config = write_config(tmp_path, **{"tidemark.cluster.secret.file": str(secret)})
    first = tidemark("format", "-c", config, "-s", "--cluster-secret")
    assert (first.exit_code, f"drew the cluster's secret in {secret}" in first.stdout) == (0, True)
    drawn = secret.read_text()
    assert drawn.strip() not in first.output
    again = tidemark("format", "-c", config, "-g", "--cluster-secret")
    assert (again.exit_code, "left as it is" in again.stdout) == (0, True)
    assert secret.read_text() == drawn


def test_bad_input_a_secret_without_a_place_is_refused(tmp_path: Path) -> None:
    result = tidemark("format", "-c", write_config(tmp_path), "-s", "--cluster-secret")
    assert result.exit_code != 0
    assert "tidemark.cluster.secret.file" in result.stderr
    assert not (tmp_path / "logs").exists()


def test_log_directories_are_listed_for_programs(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    assert tidemark("format", "--config", config, "--standalone").exit_code == 0
    done = tidemark("directories", "list", "--config", config, "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["directories"]
    assert [row["path"] for row in rows] == [str(tmp_path / "one"), str(tmp_path / "two")]
    for row in rows:
        assert row["id"] in (Path(row["path"]) / "meta.properties").read_text()
        assert (row["replicas"], row["state"]) == (0, "there")
