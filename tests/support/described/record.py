"""Let Kafka's tool describe scripted quorums, and keep what it prints.

    python -m tests.support.described.record

writes `tests/golden/metadata-quorum/scripted.jsonl`.
"""

import json
import subprocess
import tempfile
from typing import Any

from tests.support.described.cases import CASES, QUORUMS, Case
from tests.support.described.scripted_controller import (
    CONTROLLER_APIS,
    ApiKey,
    ScriptedController,
    serving,
)
from tests.support.kafka.tools import PEERS
from tests.support.samples.golden_files import GOLDEN

FILE = GOLDEN / "metadata-quorum" / "scripted.jsonl"


def record(case: Case) -> dict[str, Any]:
    """What the tool prints; of a failure only the first line."""
    quorum = QUORUMS[case.quorum]
    apis = CONTROLLER_APIS | {ApiKey.DESCRIBE_QUORUM: case.versions}
    controller = ScriptedController(quorum, node_id=quorum.leader_id, active=quorum.leader_id)
    controller.apis = apis
    with serving(controller) as address:
        done = subprocess.run(
            [
                str(PEERS / "kafka"), "tool", "metadata-quorum",
                "--bootstrap-controller", address, *case.arguments,
            ],
            capture_output=True, text=True, timeout=60, check=False, cwd=tempfile.gettempdir(),
        )  # fmt: skip
    first = done.stderr.splitlines()[0] if done.stderr else ""
    return {"case": case.name, "exit": done.returncode, "stdout": done.stdout, "stderr": first}


def main() -> None:
    FILE.parent.mkdir(exist_ok=True)
    rows = [record(case) for case in CASES]
    FILE.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
