"""Decides if a series of samples is flat: pure, so that its tests can use made-up leaks.

The warm-up, a third of the run and 20 minutes at most, is excluded, because caches, pools and logs
fill then. The later samples get the line of Theil and Sen. Its slope is the median of the slopes
between all pairs of samples. So 29 per cent of them may lie anywhere (a topic just made, a fault of
the store, a busy machine). The growth is that slope times the time from the first to the last
sample that is validated.

A figure that follows the load of a shared machine, such as the number of topics, has a slope in two
minutes by chance. So the least growth counts: the lower end of Sen's interval, which is true in 99
of 100 cases. It depends on the order of the samples, and approaches the growth with many samples.
Its limit is the allowance of the figure, one number for runs of any length. So a run that is ten
times as long finds a leak that is ten times slower.

Sources: Sen, "Estimates of the regression coefficient based on Kendall's tau" (1968).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

WARM_UP_SHARE = 1 / 3
WARM_UP_S_MAX = 1_200
VALIDATED_SAMPLES_MIN = 8
PAIRED_SAMPLES_MAX = 240
"""More are thinned out evenly: pairs grow with the square."""
CERTAIN_DEVIATIONS = 2.326
"""Of the normal distribution, for 99 of 100 on one side."""


@dataclass
class Series:
    """One figure over time.

    Attributes:
        name, unit: For the report.
        allowance: Growth after the warm-up that is no finding, in units; None: shown, not
            validated.
        samples: (seconds since the start, value).
    """

    name: str
    unit: str
    allowance: float | None
    samples: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """Growth of a series after the warm-up.

    Attributes:
        least: Least growth, true in 99 of 100 cases; may be below zero.
    """

    series: Series
    first: float
    last: float
    growth: float
    least: float
    finding: str


def validated_samples(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the samples after the warm-up; thinned out if there are many."""
    if not samples:
        return []
    warm_s = min(samples[-1][0] * WARM_UP_SHARE, WARM_UP_S_MAX)
    kept = [one for one in samples if one[0] >= warm_s]
    step = -(-len(kept) // PAIRED_SAMPLES_MAX)
    return kept[::step] if step else kept


def slopes(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of the line of Theil and Sen, and the least that it certainly is; units a second."""
    between = sorted(
        (b - a) / (at_b - at_a) for (at_a, a), (at_b, b) in combinations(samples, 2) if at_b > at_a
    )
    if not between:
        return 0.0, 0.0
    n = len(samples)
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    rank = (len(between) - CERTAIN_DEVIATIONS * deviation) / 2
    return statistics.median(between), between[max(0, int(rank))]


def verdict(series: Series) -> Verdict:
    """Validate one series by the rule above."""
    kept = validated_samples(series.samples)
    if len(kept) < VALIDATED_SAMPLES_MIN:
        finding = f"{series.name}: {len(kept)} samples after the warm-up are too few to validate"
        return Verdict(series, 0, 0, 0, 0, finding if series.allowance is not None else "")
    part = max(1, len(kept) // 5)
    first = statistics.median(value for _, value in kept[:part])
    last = statistics.median(value for _, value in kept[-part:])
    seconds = kept[-1][0] - kept[0][0]
    growth, least = (one * seconds for one in slopes(kept))
    finding = ""
    if series.allowance is not None and least > series.allowance:
        finding = (
            f"{series.name} grew by {growth:.1f} {series.unit}, certainly by {least:.1f}, in the "
            f"{seconds / 60:.1f} min after the warm-up (from {first:.1f} to {last:.1f}); "
            f"{series.allowance:g} are allowed"
        )
    return Verdict(series, first, last, growth, least, finding)
