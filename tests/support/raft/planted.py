"""Looks how soon simulated quorums find each planted bug of the metadata quorum.

    make simulate-bugs                       # all whose patch says `Simulate: core` or `raft`
    make simulate-bugs IDS="RC10 RC14"
    make simulate-bugs RECORDED=1            # CI: each with the one seed that its patch records
    make simulate-bugs RECORD=1              # after a change: records another where it must
    python -m tests.support.raft.planted RC10 --seeds 0-499 --events 2500

Seeds are tried from the first on, as if nobody knew which of them finds the bug. Another core takes
other turns with the same seed: `RECORD=1` (`--record`) tries the recorded one (`Seed: 19`) before
the others, and writes down which it was. The exit status is 1 if a bug is not found.
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

from tests.planted.run import ROOT, Planted, compile_tree, copy_tree, git_apply, read_patches

SIMULATED = re.compile(r"^Simulate: (\w+)$", re.MULTILINE)
RECORDED = re.compile(r"^Seed: (\d+)$", re.MULTILINE)
PAGE = ROOT / "docs" / "testing.md"


def world_of(planted: Planted) -> str | None:
    """The simulation that must find a patch's bug, None if none has to."""
    found = SIMULATED.search(planted.path.read_text().partition("diff --git")[0])
    return None if found is None else found[1]


def recorded_seed(planted: Planted) -> str:
    """The seed that a patch says finds its bug."""
    found = RECORDED.search(planted.path.read_text().partition("diff --git")[0])
    assert found is not None, f"{planted.path}: no line `Seed: ...`"
    return found[1]


def record(patch: Path, seed: int) -> None:
    """Write the seed that finds a bug into its patch, and into the page that lists some."""
    text = re.sub(r"^Seed: .*$", f"Seed: {seed}", patch.read_text(), count=1, flags=re.MULTILINE)
    patch.write_text(re.sub(r"seed_holds\[\d+\]", f"seed_holds[{seed}]", text, count=1))
    row = re.compile(rf"(\| {patch.stem} \| \w+ \| )\d+ \|")
    PAGE.write_text(row.sub(rf"\g<1>{seed} |", PAGE.read_text()))


def run_seeds(tree: Path, world: str, seeds: str, events: int) -> tuple[bool, str]:
    """Run seeds in a tree with a bug; whether one found it, and what was said last."""
    command = [sys.executable, "-m", "tests.simulation.run", world, "--plain"]
    done = subprocess.run(
        [*command, "--seeds", seeds, "--events", str(events)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    said = next((line for line in lines if line.startswith("seed ")), "")  # a history has more
    return done.returncode == 1 and bool(said), said or lines[-1]


def search(tree: Path, planted: Planted, options: argparse.Namespace) -> bool:
    """Plant a bug and run seeds until one finds it; whether one did."""
    began = time.monotonic()
    reason = git_apply(tree, planted.path)
    if reason:
        print(f"{planted.id} does not apply: {reason.splitlines()[0]}", flush=True)
        return False
    world = world_of(planted)
    assert world is not None
    is_found, said = False, ""
    if options.recorded or options.record:
        is_found, said = run_seeds(tree, world, recorded_seed(planted), options.events)
    if not is_found and not options.recorded:
        is_found, said = run_seeds(tree, world, options.seeds, options.events)
    git_apply(tree, planted.path, "--reverse")
    seed = said.split()[1].rstrip(":") if is_found else ""
    if is_found and not options.recorded and run_seeds(tree, world, seed, options.events)[0]:
        is_found, said = False, f"without the bug too: {said}"
    if is_found and options.record:
        record(planted.path, int(seed))
    words = said[:140] if is_found else f"NOT FOUND ({said[:140]}): {planted.bug}"
    print(f"{planted.id} {words} ({time.monotonic() - began:.0f} s)", flush=True)
    return is_found


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", help="bugs to plant; none: all of the simulation")
    parser.add_argument("--seeds", default="0-499")
    parser.add_argument("--events", type=int, default=2500)
    parser.add_argument("--record", action="store_true", help="write the seed into the patch")
    parser.add_argument("--recorded", action="store_true", help="only the seeds of the patches")
    options = parser.parse_args(arguments)
    bugs = [one for one in read_patches(ROOT, options.ids) if world_of(one) is not None]
    with tempfile.TemporaryDirectory(prefix="simulated-") as name:
        tree = Path(name).resolve()
        copy_tree(ROOT, tree)
        compile_tree(tree)
        found = [search(tree, one, options) for one in bugs]
    print(f"{sum(found)} of {len(bugs)} planted bugs are found", flush=True)
    return 0 if bugs and all(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
