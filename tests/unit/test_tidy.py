"""Rules of this repository that no linter knows. A failure names file and line."""

import ast
import re
import subprocess
import tokenize
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from broker.config import docs as config_docs
from broker.handlers import docs as handler_docs

pytestmark = [pytest.mark.lasts(seconds=12), pytest.mark.lasts(seconds=25)]

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "kafka_protocol",
    "runtime",
    "kafka_client",
    "local_log",
    "rsm_plugins",
    "rlmm",
    "metadata_topic",
    "rlm",
    "broker",
    "pipeline",
    "pyspark_tidemark",
    "tidemark",
]
LINES_MAX = 800
LINES_MIN = 60
ONE_API = "api_key = ApiKey."
"""A handler: one file an API key, whatever its size."""
SHORT_FILES = {
    "*/__init__.py": "says what its folder holds",
    "kafka_protocol/wire/messages/*": "the schemas of one API",
    "kafka_protocol/files/*": "one format of a file",
    "kafka_protocol/types.py": "every package names these, and loads no more with them",
    "tidemark/commands/*": "one command, which is imported by its name when it is called",
    "tidemark/embedded/log_lines.py": "loaded where a test fails, and knows no process",
    "tidemark/embedded/errors.py": "a test suite's process imports nothing else of ours",
    "runtime/override.py": "one decorator, which every package may import",
    "rsm_plugins/place.py": "below the link of broker and tier, which names no plugin",
    "tidemark/platforms.py": "asked before anything else of ours is loaded",
    "tidemark/errors.py": "public: the errors that users catch",
    "tidemark/plugins/testing.py": "public: needs pytest, the rest of `tidemark.plugins` does not",
    "tidemark/remote/progress.py": "loads rich, for the commands that show how far they are",
    "broker/coordinator/group/lifecycle.py": "the table that docs/groups.md draws",
    "broker/handlers/controllers/parts.py": "below each handler of the listener and above none",
    "broker/handlers/docs.py": "a program: it makes docs/apis.md",
    "broker/handlers/errors_out.py": "the one place where errors become codes",
    "broker/handlers/fetch_asked.py": "what a Fetch asks for, for all that answer it",
    "broker/handlers/fetch_versions.py": "below all files of Fetch",
    "broker/handlers/group_shards.py": "below all handlers of groups",
    "broker/handlers/produce_versions.py": "below all files of Produce",
    "broker/testing/faults/fetch_splice.py": "pure, by its import contract",
    "local_log/manager/closing.py": "one thing that a manager does with all logs",
    "local_log/manager/dir_failures.py": "one thing that a manager does with all logs",
    "runtime/version.py": "one fact, for programs that load nothing else of ours",
    "local_log/small_files.py": "below all layers of a log",
    "metadata_topic/controller/result.py": "below all decisions",
    "metadata_topic/quorum/errors.py": "below all of the quorum",
    "metadata_topic/raft/config.py": "below all of the core; brokers make it",
    "pipeline/columns.py": "needs Arrow, `pipeline.values` does not",
    "pipeline/dump/json_fields.py": "needs no Arrow: `tidemark consume` has none",
    "pipeline/dump/jsonl.py": "needs Arrow, `json_fields` does not",
    "pipeline/opening.py": "the one place that chooses between cluster and bucket",
    "pipeline/spark/reading.py": "loaded when something is read: `source` must be light",
    "pipeline/spark/stream_reader_42.py": "needs PySpark 4.2",
    "rlmm/loader.py": "loads a plugin by its name",
    "runtime/raised.py": "below the contract and what health says, which share it",
    "rsm_plugins/hdfs/native_fs.py": "needs hdfs-native, an extra",
}
"""Files of the packages that are shorter than a subject, and why they are files."""
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|breakpoint\(\)")
# Absolute paths of somebody's machine; Kafka's own defaults are the exceptions.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|home|root|Users|mnt|tmp)/[\w.-]+")
KAFKA_DEFAULTS = {"/tmp/kafka-logs", "/tmp/kraft-combined-logs"}
SIGNATURES = re.compile(r"(?i)co-authored-by|generated (?:by|with) (?:an? )?(?:ai|llm|assistant)")
SUBJECT_CHARS_MAX = 72
SUBJECTS_SINCE = "09642710a0232c21eeae18df5fc67ff2c53bb7a9"
"""Earlier commits are as they are."""
PARAMETERS_MAX = 6
TEXT_FILES = (".py", ".md", ".toml", ".yml", ".yaml", ".properties", ".sh")


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def text_files() -> list[Path]:
    named = [ROOT / "Makefile", ROOT / ".ci" / "run"]
    golden = ROOT / "tests" / "golden"
    return [
        path
        for path in tracked()
        if (path.suffix in TEXT_FILES or path in named)
        and not path.is_relative_to(golden)
        and path != Path(__file__)
    ]


def python_files(*, of_packages: bool = False) -> list[Path]:
    found = [path for path in text_files() if path.suffix == ".py"]
    if not of_packages:
        return found
    return [path for path in found if path.relative_to(ROOT).parts[0] in PACKAGES]


def hits(pattern: re.Pattern[str], paths: list[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            for match in pattern.finditer(line):
                yield f"{path.relative_to(ROOT)}:{number}", match.group()


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in python_files()}
    assert [
        f"{path.relative_to(ROOT)}: {size}" for path, size in sizes.items() if size > LINES_MAX
    ] == []


def test_no_file_of_the_packages_is_a_crumb_without_a_reason() -> None:
    texts = {
        str(path.relative_to(ROOT)): path.read_text() for path in python_files(of_packages=True)
    }
    crumbs = [
        name
        for name, text in texts.items()
        if len(text.splitlines()) < LINES_MIN and ONE_API not in text
    ]
    assert [
        name for name in crumbs if not any(fnmatch(name, short) for short in SHORT_FILES)
    ] == [], "fold it into the file whose subject it is part of, or give a reason"
    assert [
        short for short in SHORT_FILES if not any(fnmatch(name, short) for name in crumbs)
    ] == [], "these need no reason any more: no short file is there"


def test_every_module_of_the_packages_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files(of_packages=True)
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_every_folder_of_the_packages_is_a_package() -> None:
    folders = {path.parent for path in python_files(of_packages=True)}
    assert [
        str(one.relative_to(ROOT)) for one in folders if not (one / "__init__.py").exists()
    ] == []


def test_nothing_is_left_for_later() -> None:
    # a contract class may demand a method of those who inherit it
    files = [path for path in python_files() if path.name != "testing.py"]
    assert list(hits(LEFTOVERS, files)) == []


def test_no_path_of_somebodys_machine() -> None:
    found = [(where, what) for where, what in hits(MACHINE_PATHS, text_files())]
    assert [one for one in found if one[1] not in KAFKA_DEFAULTS] == []


def test_no_signature_of_a_tool() -> None:
    assert list(hits(SIGNATURES, text_files())) == []


def is_value(one: ast.ClassDef) -> bool:
    """Whether a class is made to be a record, so that its parameters are its fields."""
    marks = [*one.bases, *one.decorator_list]
    return any(name in ast.dump(mark) for mark in marks for name in ("dataclass", "NamedTuple"))


def test_no_constructor_takes_more_than_a_reader_can_hold() -> None:
    wide = []
    for path in python_files(of_packages=True):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef) or is_value(node):
                continue
            for made in node.body:
                if isinstance(made, ast.FunctionDef) and made.name == "__init__":
                    given = made.args
                    count = len([*given.posonlyargs, *given.args, *given.kwonlyargs]) - 1
                    if count > PARAMETERS_MAX:
                        wide.append(node.name)
    assert wide == []


def test_nothing_prints_but_the_command_line() -> None:
    printing = []
    for path in python_files(of_packages=True):
        if path.relative_to(ROOT).parts[0] == "tidemark":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                printing.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert printing == []


def test_test_files_have_names_of_their_own() -> None:
    names: dict[str, list[str]] = {}
    for path in python_files():
        where = path.relative_to(ROOT)
        if where.parts[0] == "tests" and path.name.startswith("test_"):
            names.setdefault(path.name, []).append(str(where))
    assert [places for places in names.values() if len(places) > 1] == []


def test_no_test_imports_a_test_and_every_harness_lies_in_support() -> None:
    harness = {"conftest.py", "run.py", "make.py"}  # pytest's, and two programs
    wrong = []
    for path in python_files():
        where = path.relative_to(ROOT)
        if where.parts[0] != "tests" or where.parts[1] == "support":
            continue
        # A model is a program with a test, and has its findings beside it.
        if where.parts[1] == "model":
            continue
        if not path.name.startswith("test_") and path.name not in harness:
            wrong.append(str(where))
        imported = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None) or "", *(one.name for one in node.names)]
        ]
        tests = [n for n in imported if (ROOT / where.parent / f"{n}.py").exists()]
        wrong += [f"{where} imports {name}" for name in tests]
    assert wrong == []


MAY_SLEEP = {
    "tests/support/brokers/process.py": "waits for a condition with a deadline",
    "tests/support/worlds/waiting.py": "waits for a condition with a deadline, in a loop",
    "tests/support/stores/s3_proxy.py": "is the slow store itself",
    "tests/support/brokers/run_broker.py": "is the slow disk itself",
    "tests/support/clients/aiokafka_client/member.py": "tries again to connect",
    "tests/support/raft_answers/controller.py": "waits for a condition with a deadline, in a loop",
    "tests/support/raft_answers/other_voters.py": "is the slow answer itself",
    "tests/support/raft_answers/record_starts.py": "gives a recorded process time to go wrong",
    "tests/support/quorum/changes.py": "is a client's pause between two changes",
    "tests/support/quorum/controllers.py": "asks a process that starts until it answers",
    "tests/support/quorum/kept_brokers.py": "sends a heartbeat now and then, as brokers do",
    "tests/support/quorum/quorum.py": "waits for a condition with a deadline, in a loop",
    "tests/support/quorum/tier_rounds.py": "is a client's pause, and how long a process is paused",
    "tests/support/quorum/replica_rounds.py": "is how long a process is paused",
    "tests/support/raft_answers/stage.py": "asks a recorded process until it has come to rest",
}


def test_tests_wait_for_conditions_and_do_not_mock() -> None:
    wrong = re.compile(r"\bsleep\((?!0\))|\bunittest\.mock\b|from unittest import mock")
    tests = [
        path
        for path in python_files()
        for where in [path.relative_to(ROOT)]
        if where.parts[0] == "tests" and str(where) not in MAY_SLEEP
    ]
    assert list(hits(wrong, tests)) == []


@pytest.mark.parametrize(
    ("page", "render"), [("configuration", config_docs.render), ("apis", handler_docs.render)]
)
def test_a_generated_page_is_fresh(page: str, render: Callable[[], str]) -> None:
    written = (ROOT / f"docs/{page}.md").read_text()
    assert written == render(), "stale: run `make docs`"


def test_links_between_documents_lead_somewhere() -> None:
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
    dead = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in text_files()
        if path.suffix == ".md"
        for target in link.findall(path.read_text())
        # Fragments become a part of CHANGELOG.md.
        if not ((ROOT if "newsfragments" in path.parts else path.parent) / target).exists()
    ]
    assert dead == []


def test_commit_subjects_are_short() -> None:
    command = ["git", "log", "--format=%s", f"{SUBJECTS_SINCE}..HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no git checkout with its history")
    long = [subject for subject in done.stdout.splitlines() if len(subject) > SUBJECT_CHARS_MAX]
    assert not long, "the reason belongs into the body"


PAGE = re.compile(r"(?<![\w/.-])((?:[\w-]+/)*[\w-]+\.md)(?:,\s+\"([^\"]+)\")?")
"""A page as code cites it, and the heading where one is named: docs/tiering.md, "The fence"."""


def docstrings(path: Path) -> list[str]:
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [found for node in nodes if (found := ast.get_docstring(node))]


def comments(path: Path) -> list[str]:
    with tokenize.open(path) as source:
        tokens = tokenize.generate_tokens(source.readline)
        return [token.string for token in tokens if token.type == tokenize.COMMENT]


def test_pages_that_code_cites_exist_with_the_headings_that_it_names() -> None:
    texts = {path: path.read_text() for path in text_files() if path.suffix == ".md"}
    wrong = []
    for path in python_files():
        cites = ".md" in path.read_text()
        for text in [*docstrings(path), *comments(path)] if cites else []:
            for name, heading in PAGE.findall(text):
                places = {ROOT / name, ROOT / "docs" / name, ROOT / "docs" / "decisions" / name}
                page = next((texts[place] for place in places if place in texts), None)
                words = r"\s+".join(map(re.escape, heading.split())) or r".*"
                if page is None or not re.search(rf"(?m)^#+ (?:\d+\. )?{words}$", page):
                    wrong.append(f"{path.relative_to(ROOT)}: {name} {heading}".rstrip())
    assert wrong == []
