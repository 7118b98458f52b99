"""Looks how soon simulated quorums find each planted bug of the metadata quorum.

    make simulate-bugs                       # all that have a `seed`
    make simulate-bugs IDS="RC10 RC14"
    make simulate-bugs RECORDED=1            # CI: each with the one seed that its table records
    make simulate-bugs RECORD=1              # after a change: records another where it must
    python -m tests.support.quorum_world.planted RC10 --seeds 0-499 --events 2500

Seeds are tried from the first on, as if nobody knew which of them finds the bug. Another program
takes other turns with the same seed: `RECORD=1` (`--record`) tries the recorded one (`seed = 19`)
before the others, and writes down which it was. The exit status is 1 if a bug is not found.
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

from tests.planted.run import compile_tree, copy_tree, planted_in
from tests.support.planted_bugs import ROOT, BadTable, Planted, entries, read_tables, write_entries
from tests.support.replication_world.plan import events_of

PAGE = ROOT / "docs" / "testing.md"
EVENTS = {"quorum": 2500, "nodes": 2500}
"""Of a seed, as in the tests of the world; of replicas `replication_world.plan` says it."""


def record(bug: Planted, seed: int) -> None:
    """Write the seed that finds a bug into its table, and into the page that lists some."""
    texts = entries(bug.table)
    text = re.sub(r"^seed = .*$", f"seed = {seed}", texts[bug.id], count=1, flags=re.MULTILINE)
    texts[bug.id] = re.sub(r"after_every_event\[\d+\]", f"after_every_event[{seed}]", text, count=1)
    write_entries(bug.table, texts)
    row = re.compile(rf"(\| {bug.id} \| )\d+ \|")
    PAGE.write_text(row.sub(rf"\g<1>{seed} |", PAGE.read_text()))


def run_seeds(tree: Path, seeds: str, events: int, world: str) -> tuple[bool, str]:
    """Run seeds in a tree with a bug; whether one found it, and what was said last."""
    command = [sys.executable, "-m", "tests.simulation.run", "--plain", "--world", world]
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

    def run(seeds: str) -> tuple[bool, str]:
        events = EVENTS.get(planted.world) or events_of(int(seeds.partition("-")[0]))
        return run_seeds(tree, seeds, options.events or events, planted.world)

    is_found, said = False, ""
    try:
        with planted_in(tree, planted):
            if options.recorded or options.record:
                is_found, said = run(str(planted.seed))
            if not is_found and not options.recorded:
                is_found, said = run(options.seeds)
    except BadTable as error:
        print(f"{planted.id} cannot be planted: {error}", flush=True)
        return False
    seed = said.split()[1].rstrip(":") if is_found else ""
    if is_found and not options.recorded and run(seed)[0]:
        is_found, said = False, f"without the bug too: {said}"
    if is_found and options.record:
        record(planted, int(seed))
    words = said[:140] if is_found else f"NOT FOUND ({said[:140]}): {planted.why}"
    print(f"{planted.id} {words} ({time.monotonic() - began:.0f} s)", flush=True)
    return is_found


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", help="bugs to plant; none: all of the simulation")
    parser.add_argument("--seeds", default="0-499")
    parser.add_argument("--events", type=int, help="of each seed; none: as its world's tests")
    parser.add_argument("--record", action="store_true", help="write the seed into the table")
    parser.add_argument("--recorded", action="store_true", help="only the seeds of the tables")
    options = parser.parse_args(arguments)
    bugs = [one for one in read_tables(ROOT, options.ids) if one.seed is not None]
    with tempfile.TemporaryDirectory(prefix="simulated-") as name:
        tree = Path(name).resolve()
        copy_tree(ROOT, tree)
        compile_tree(tree)
        found = [search(tree, one, options) for one in bugs]
    print(f"{sum(found)} of {len(bugs)} planted bugs are found", flush=True)
    return 0 if bugs and all(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
