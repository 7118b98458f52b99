"""Blocks of the pages for operators that no test types, each with the reason.

All others are typed: by `tests.support.brokers.page_reader`, or, of docs/controllers.md and
docs/replication.md, by `tests/integration/test_operators_page.py`.
"""

import re
from collections.abc import Iterator
from typing import Final

TYPED: Final = {"sh", "text", "python", "properties"}
"""Kinds that are typed, or compared with what was printed; a block with a name is a file.

`properties` without a name is a part of a file: its keys are looked up.
"""
UNTYPED: Final[dict[str, dict[str, str]]] = {
    "operations.md": {
        'eval "$(_TIDEMARK_COMPLETE=zsh_source tidemark)"       # zsh': "needs zsh and fish",
        "$ tidemark directories list --config server.properties": (
            "needs a disk that is lost: test_lost_directories.py"
        ),
        "$ tidemark directories drain /disk2/logs --bootstrap-server localhost:9092": (
            "needs three disks: test_moved_directories.py"
        ),
        "[2026-11-30 19:58:00,092+00:00] INFO Tidemark 0.1.0 starts: node_id=1 "
        "roles=broker,controller python=3.11.7 (tidemark.node_files.loading)": "lines of a log",
        "the event loop was held: held_ms=141 callback=broker.replica.manager.ReplicaManager.apply "
        "at=runtime.disk.Disk.fsync:210 < ... cpu_ms=57 blocked_ms=50 lock_ms=1 runnable_ms=33 "
        "stolen_ms=0 full_collections=0 not_shown=0 ...": "a line of a log",
        "$ tidemark remote claim --config server.properties": (
            "needs an older copy of the directories: test_tiering_claim.py"
        ),
        "$ tidemark remote segments tides": "typed on README.md, where the topic is made",
        "$ tidemark remote audit --config server.properties --deep": (
            "needs a store that lost objects: test_remote_tools.py"
        ),
        "$ tidemark remote restore-partition tides 0 --bootstrap-server h11:9092": (
            "needs disks that are lost: test_tiering_restored_partitions.py"
        ),
        "$ tidemark remote adopt tides 0 --config server.properties": (
            "needs a log whose end is lost: test_tiering_lost_files.py"
        ),
        "$ tidemark remote forget 69SYgX_rQIaW5edLO8I93A": (
            "needs metadata of another time: test_tiering_forgotten.py"
        ),
        "$ tidemark rsm check rsm_plugins.s3:S3RemoteStorageManager --config-file "
        "server.properties": "typed on docs/remote-stores.md, with options",
        "until tidemark brokers safe-to-stop 12; do sleep 1; done": (
            "needs three brokers: test_operators_page.py"
        ),
    },
    "taking-over.md": {
        "tidemark start --config /etc/kafka/server.properties": (
            "needs directories that Kafka has left: test_taking_over.py"
        ),
        '{"version": 1, "partitions": [{"topic": "__remote_log_metadata", "partition": 0, '
        '"replicas": [11, 12, 13]}, ...]}': "is cut short: test_taking_over.py has a whole one",
        "kafka-reassign-partitions.sh --bootstrap-server $B --reassignment-json-file plan.json "
        "--execute": "needs three brokers: test_taking_over.py",
    },
    "remote-stores.md": {},
    "tiering.md": {"flowchart LR": "a diagram"},
    "tiering-processes.md": {},
    "tiering-write-orders.md": {"sequenceDiagram": "a diagram"},
    "tiering-fence.md": {"sequenceDiagram": "a diagram", "stateDiagram-v2": "a diagram"},
    "tiering-reads.md": {"sequenceDiagram": "a diagram"},
    "tiering-beside-kafka.md": {},
    "tiering-cluster.md": {
        "sequenceDiagram": "a diagram",
        "tidemark remote replicate-metadata --bootstrap-server broker-1:9092": (
            "needs three brokers: test_remote_metadata_replicas.py"
        ),
    },
    "tiering-files.md": {
        "tides-69SYgX_rQIaW5edLO8I93A/0/00000000000000000000-NfCWEav0TXazVbwNsHf72w.log        "
        "999,645 bytes": "names of objects",
        '{"version": 1, "topic": "tides", "topicId": "69SYgX_rQIaW5edLO8I93A", "partition": 0,': (
            "an object"
        ),
    },
    "console.md": {},
    "plugin-http.md": {
        "export PYTHONPATH=/the/directory/of/kv_store.py": "a directory of the reader; the test of "
        "this page types the same as `tidemark rsm new` prints it",
    },
}
"""By page, and by the first line of the block."""

_FENCE = re.compile(r"^ *```(\w*)[ ]?(\S*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def untyped(page: str) -> Iterator[str]:
    """The first line of each block that is neither typed nor a file."""
    for kind, name, body in _FENCE.findall(page):
        if kind not in TYPED and not name:
            yield body.splitlines()[0].strip()
