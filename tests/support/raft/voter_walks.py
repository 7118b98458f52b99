"""Long random ways through the states of `small_scope`, while voters come and go.

    python -m tests.support.raft.voter_walks --seeds 100 --steps 2000

Five controllers, of which three vote at first. A way is decided by its seed alone. What is said of
a breach is the way to it; the exit status is 1 then.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from metadata_topic.raft.voters import VoterSet
from tests.support.quorum_world.errors import Violation
from tests.support.raft.small_scope import Bounds, Scope, State

_ENDLESS = 1_000_000
WALKED = Bounds(
    voters=3,
    outsiders=2,
    epochs=_ENDLESS,
    entries=_ENDLESS,
    crashes=_ENDLESS,
    losses=_ENDLESS,
    timeouts=_ENDLESS,
    changes=_ENDLESS,
    searches=True,
)
STATIC = replace(WALKED, is_static=True)
"""The voters begin as those of the settings."""
_TRIES_MAX = 50
_TOLD_MAX = 60


@dataclass
class Walked:
    """What happened on a way.

    Attributes:
        voters: sets that were committed, one after the other.
        story: the last events before a breach.
    """

    seed: int
    steps: int = 0
    leaders: int = 0
    commits: int = 0
    voters: tuple[VoterSet, ...] = ()
    violation: Violation | None = None
    story: tuple[str, ...] = ()


def walk(seed: int, steps: int, bounds: Bounds = WALKED) -> Walked:
    """Go so many steps, or until a rule is broken."""
    rng = Random(f"voter-walk-{seed}")
    scope = Scope(bounds, is_plain=True)
    state, walked, story = scope.first(), Walked(seed), []
    try:
        for _ in range(steps):
            following = _next(scope, state, rng)
            if following is None:
                break  # who could continue is waited for by nobody: no times run here
            story.append(following[0])
            state = following[1]
            walked.steps += 1
    except Violation as violation:
        walked.violation, walked.story = violation, tuple(story[-_TOLD_MAX:])
    walked.leaders, walked.commits = len(state.leaders), len(state.committed)
    walked.voters = scope.locals.voters_in(state.committed)
    return walked


def _next(scope: Scope, state: State, rng: Random) -> tuple[str, State] | None:
    kinds = {
        scope.arrivals: 120, scope.flushes: 30, scope.appends: 6, scope.changes: 8,
        scope.timeouts: 3, scope.losses: 2, scope.crashes: 1,
    }  # fmt: skip
    for _ in range(_TRIES_MAX):
        [kind] = rng.choices(list(kinds), list(kinds.values()))
        coming = list(kind(state))
        if coming:
            for label, after in rng.choice(coming)():
                return label, after
    return None


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--static", action="store_true", help="voters begin as static ones")
    options = parser.parse_args(arguments)
    for seed in range(options.first, options.first + options.seeds):
        found = walk(seed, options.steps, STATIC if options.static else WALKED)
        print(
            f"seed={seed} steps={found.steps} leaders={found.leaders} commits={found.commits} "
            f"changes={len(found.voters)}",
            flush=True,
        )
        if found.violation is not None:
            print("\n".join((*found.story, str(found.violation))))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
