"""One seed is one run. `.ci/pythons.py` asks the same of each version of Python."""

import os
import subprocess
import sys


def test_a_run_is_the_same_whatever_the_order_of_hashes() -> None:
    hashes = [
        subprocess.run(
            [sys.executable, "-m", "tests.support.quorum_world.trace_hashes"],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "4711")
    ]
    assert hashes[0] == hashes[1]
    assert " 4=" in hashes[0]
