"""Looks how soon simulated quorums find each planted bug of the metadata quorum.

    make simulate-bugs                       # all whose patch says `Simulate: core` or `raft`
    make simulate-bugs IDS="RC10 RC14"
    python -m tests.support.raft.planted RC10 --seeds 0-499 --events 2500 --record

`tests/planted/run.py` runs the seed that a patch records (`Seed: 19`) with those of every day; here
seeds are tried from the first on, as if nobody knew. Another core takes other turns with the same
seed: `--record` writes down which seed it is now. The exit status is 1 if a bug is not found.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.planted.run import ROOT, Planted, copy_tree, git_apply, read_patches

SIMULATED = re.compile(r"^Simulate: (\w+)$", re.MULTILINE)


def world_of(planted: Planted) -> str | None:
    """The simulation that must find a patch's bug, None if none has to."""
    found = SIMULATED.search(planted.path.read_text().partition("diff --git")[0])
    return None if found is None else found[1]


def record(patch: Path, seed: int) -> None:
    """Write the seed that finds a bug into its patch."""
    text = re.sub(r"^Seed: .*$", f"Seed: {seed}", patch.read_text(), count=1, flags=re.MULTILINE)
    patch.write_text(re.sub(r"seed_holds\[\d+\]", f"seed_holds[{seed}]", text, count=1))


def search(tree: Path, planted: Planted, options: argparse.Namespace) -> bool:
    """Plant a bug and run seeds until one finds it; whether one did."""
    began = time.monotonic()
    reason = git_apply(tree, planted.path)
    if reason:
        print(f"{planted.id} does not apply: {reason.splitlines()[0]}", flush=True)
        return False
    world = world_of(planted)
    assert world is not None
    command = [sys.executable, "-m", "tests.simulation.run", world, "--plain"]
    command += ["--seeds", options.seeds, "--events", str(options.events)]
    done = subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    git_apply(tree, planted.path, "--reverse")
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    is_found = done.returncode == 1 and said.startswith("seed ")
    if is_found and options.record:
        record(planted.path, int(said.split()[1].rstrip(":")))
    words = said[:140] if is_found else f"NOT FOUND ({said[:140]}): {planted.bug}"
    print(f"{planted.id} {words} ({time.monotonic() - began:.0f} s)", flush=True)
    return is_found


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", help="bugs to plant; none: all of the simulation")
    parser.add_argument("--seeds", default="0-499")
    parser.add_argument("--events", type=int, default=2500)
    parser.add_argument("--record", action="store_true", help="write the seeds into the patches")
    options = parser.parse_args(arguments)
    bugs = [one for one in read_patches(ROOT, options.ids) if world_of(one) is not None]
    with tempfile.TemporaryDirectory(prefix="simulated-") as name:
        tree = Path(name).resolve()
        copy_tree(ROOT, tree)
        found = [search(tree, one, options) for one in bugs]
    print(f"{sum(found)} of {len(bugs)} planted bugs are found", flush=True)
    return 0 if bugs and all(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
