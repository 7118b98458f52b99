"""Numbers about the process, cheap to count and printed in Prometheus' text format.

The hot path adds to a bound child (`counter.labels("orders").inc(n)`): one attribute addition.
Gauges may be functions that are called only for a page. The page is made in pieces, so that an
event loop can do other things in between, however many values there are.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from runtime.clock import Clock

WINDOW_MS = 60_000

DEFAULT_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

PIECE_ROWS: Final = 300
"""Values of a piece of the page: one or two milliseconds of work."""


class Row(NamedTuple):
    """One value of a metric: what follows its name, its label values, and `le` of a bucket."""

    suffix: str
    labels: tuple[str, ...]
    le: str | None
    value: float


Rows: TypeAlias = Iterator[Row | None]
"""None: a pause is possible here, in the middle of a long computation."""


class Sample(NamedTuple):
    """One printed value."""

    name: str
    type: str
    help: str
    labels: dict[str, str]
    value: float


class CounterChild:
    """The counter for one combination of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add `amount` (not negative)."""
        self.value += amount


class Counter:
    """A number that only grows."""

    __slots__ = ("_children", "_gone", "help", "label_names", "name")
    type = "counter"

    def __init__(self, name: str, help: str, label_names: Sequence[str] = ()) -> None:
        self.name, self.help, self.label_names = name, help, tuple(label_names)
        self._children: dict[tuple[str, ...], CounterChild] = {}
        self._gone: float = 0
        if not label_names:
            self._children[()] = CounterChild()

    def labels(self, *labels: str) -> CounterChild:
        """The child for these label values; keep it and add to it on hot paths."""
        child = self._children.get(labels)
        if child is None:
            if len(labels) != len(self.label_names):
                raise ValueError(f"{self.name} has labels {self.label_names}, not {labels}")
            child = self._children[labels] = CounterChild()
        return child

    def inc(self, amount: float = 1, *labels: str) -> None:
        """Add `amount` to the child of these label values."""
        child = self._children.get(labels)
        if child is None:
            child = self.labels(*labels)
        child.value += amount

    def value(self, *labels: str) -> float:
        """The present count, 0 for labels never seen."""
        child = self._children.get(labels)
        return 0 if child is None else child.value

    def total(self) -> float:
        """The count over all labels, those of removed children too; O(children)."""
        return self._gone + sum(child.value for child in self._children.values())

    def remove(self, *labels: str) -> None:
        """Forget a child, such as that of a deleted topic."""
        child = self._children.pop(labels, None)
        if child is not None:
            self._gone += child.value

    def rows(self) -> Rows:
        """One row a child."""
        for labels, child in list(self._children.items()):
            yield Row("", labels, None, child.value)


Labelled: TypeAlias = tuple[tuple[str, ...], float]
GaugeFn: TypeAlias = Callable[
    [], float | Mapping[tuple[str, ...], float] | Iterator[Labelled | None]
]


class Gauge:
    """A number that goes up and down, set or computed.

    With `fn` it is computed for each page: a number, a mapping from label values, or an iterator of
    these pairs where there are thousands. Other work may be done while such an iterator runs, and
    it may yield None where it has computed for long without a value.
    """

    __slots__ = ("_fn", "_values", "help", "label_names", "name")
    type = "gauge"

    def __init__(
        self, name: str, help: str, label_names: Sequence[str] = (), fn: GaugeFn | None = None
    ) -> None:
        self.name, self.help, self.label_names = name, help, tuple(label_names)
        self._fn = fn
        self._values: dict[tuple[str, ...], float] = {}

    def set(self, value: float, *labels: str) -> None:
        """Set the value for these label values."""
        self._values[labels] = value

    def inc(self, amount: float = 1, *labels: str) -> None:
        """Change the value for these label values by `amount`."""
        self._values[labels] = self._values.get(labels, 0) + amount

    def remove(self, *labels: str) -> None:
        """Forget the value for these label values."""
        self._values.pop(labels, None)

    def rows(self) -> Rows:
        """One row a combination of label values."""
        answer = dict(self._values) if self._fn is None else self._fn()
        if isinstance(answer, Mapping):
            answer = iter(answer.items())
        elif isinstance(answer, int | float):
            answer = iter([((), answer)])
        for pair in answer:
            yield None if pair is None else Row("", pair[0], None, pair[1])


class AskedCounter(Gauge):
    """A number that only grows, counted elsewhere and read for each page."""

    __slots__ = ()
    type = "counter"


class HistogramChild:
    """The histogram for one combination of label values."""

    __slots__ = ("_bounds", "buckets", "count", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum: float = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.buckets[bisect_left(self._bounds, value)] += times
        self.count += times
        self.sum += value * times


class Histogram:
    """The distribution of values, in cumulative buckets with inclusive upper bounds."""

    __slots__ = ("_bounds", "_children", "help", "label_names", "name")
    type = "histogram"

    def __init__(
        self,
        name: str,
        help: str,
        label_names: Sequence[str] = (),
        buckets: Sequence[float] = DEFAULT_BUCKETS_MS,
    ) -> None:
        self.name, self.help, self.label_names = name, help, tuple(label_names)
        self._bounds = tuple(buckets)
        self._children: dict[tuple[str, ...], HistogramChild] = {}

    def labels(self, *labels: str) -> HistogramChild:
        """The child for these label values; keep it and add to it on hot paths."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = HistogramChild(self._bounds)
        return child

    def observe(self, value: float, *labels: str) -> None:
        """Count a value for these label values."""
        self.labels(*labels).observe(value)

    def remove(self, *labels: str) -> None:
        """Forget a child, such as that of a deleted topic."""
        self._children.pop(labels, None)

    def rows(self) -> Rows:
        """Buckets, sum and count of each child, all of one moment."""
        bounds = [*map(_number, self._bounds), "+Inf"]
        for labels, child in list(self._children.items()):
            counts, total, count = list(child.buckets), child.sum, child.count
            below = 0
            for bound, within in zip(bounds, counts, strict=True):
                below += within
                yield Row("_bucket", labels, bound, below)
            yield Row("_sum", labels, None, total)
            yield Row("_count", labels, None, count)


Metric = Counter | Gauge | Histogram


class Registry:
    """All metrics of a process; asking twice for a name gives the same metric."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def _add(self, metric: Metric) -> Metric:
        known = self._metrics.get(metric.name)
        if known is None:
            self._metrics[metric.name] = metric
            return metric
        if type(known) is not type(metric) or known.label_names != metric.label_names:
            raise ValueError(f"metric {metric.name} exists with another type or other labels")
        return known

    def counter(self, name: str, help: str, labelnames: Sequence[str] = ()) -> Counter:
        """A number that only grows."""
        metric = self._add(Counter(name, help, labelnames))
        assert isinstance(metric, Counter)
        return metric

    def gauge(
        self, name: str, help: str, labelnames: Sequence[str] = (), fn: GaugeFn | None = None
    ) -> Gauge:
        """A number that is set, or computed by `fn` for each page."""
        metric = self._add(Gauge(name, help, labelnames, fn))
        assert isinstance(metric, Gauge)
        return metric

    def asked_counter(self, name: str, help: str, fn: GaugeFn) -> AskedCounter:
        """A number that only grows, read from `fn` for each page."""
        metric = self._add(AskedCounter(name, help, (), fn))
        assert isinstance(metric, AskedCounter)
        return metric

    def histogram(
        self,
        name: str,
        help: str,
        labelnames: Sequence[str] = (),
        buckets: Sequence[float] = DEFAULT_BUCKETS_MS,
    ) -> Histogram:
        """The spread of a value; buckets default to milliseconds."""
        metric = self._add(Histogram(name, help, labelnames, buckets))
        assert isinstance(metric, Histogram)
        return metric

    def get(self, name: str) -> Metric | None:
        """The metric of that name, None where there is none."""
        return self._metrics.get(name)

    def registered(self) -> list[Metric]:
        """All metrics, in the order in which they were made."""
        return list(self._metrics.values())

    def samples(self) -> list[Sample]:
        """Every value, for callers that need no text."""
        return [
            Sample(one.name + row.suffix, one.type, one.help, _named(one, row), row.value)
            for one in self._metrics.values()
            for row in one.rows()
            if row is not None
        ]

    def pieces(self) -> Iterator[bytes]:
        """Make the page that Prometheus scrapes (text format 0.0.4), a piece at a time.

        Other work may be done between two pieces; a metric made or removed meanwhile may be
        missing. A piece may be empty. Source: prometheus.io, Exposition formats.
        """
        lines: list[str] = []
        for metric in self.registered():
            for line in _lines(metric):
                if line is not None:
                    lines.append(line)
                if line is None or len(lines) >= PIECE_ROWS:
                    yield "".join(lines).encode()
                    lines.clear()
        yield "".join(lines).encode()

    def render(self) -> bytes:
        """The page as a whole."""
        return b"".join(self.pieces())


def _named(metric: Metric, row: Row) -> dict[str, str]:
    labels = dict(zip(metric.label_names, row.labels, strict=True))
    return labels if row.le is None else labels | {"le": row.le}


def _lines(metric: Metric) -> Iterator[str | None]:
    """The lines of a metric, none if it has no value; None: a pause is possible here."""
    names = [f'{name}="' for name in metric.label_names]
    head = f"# HELP {metric.name} {_escape_help(metric.help)}\n# TYPE {metric.name} {metric.type}\n"
    for row in metric.rows():
        if row is None:
            yield None
            continue
        pairs = [f'{name}{_escape(text)}"' for name, text in zip(names, row.labels, strict=True)]
        if row.le is not None:
            pairs.append(f'le="{row.le}"')
        labels = f"{{{','.join(pairs)}}}" if pairs else ""
        yield f"{head}{metric.name}{row.suffix}{labels} {_value(row.value)}\n"
        head = ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _value(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return _number(value)


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape(text: str) -> str:
    return _escape_help(text).replace('"', '\\"')


class Recent:
    """Values of the last half to one window: the newer half is counted while the older one ages."""

    __slots__ = ("_began_ms", "_clock", "_halves", "_since_ms", "_window_ms")

    def __init__(self, clock: Clock, window_ms: int = WINDOW_MS) -> None:
        self._clock, self._window_ms = clock, window_ms
        self._began_ms = self._since_ms = clock.monotonic_ms()
        self._halves = ((0, 0.0, 0.0), (0, 0.0, 0.0))

    def note(self, value: float) -> None:
        """One value, now."""
        self._age()
        older, (count, total, longest) = self._halves
        self._halves = older, (count + 1, total + value, max(longest, value))

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Note the duration of the block, in ms."""
        began_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self.note(self._clock.monotonic_ms() - began_ms)

    @property
    def average(self) -> float:
        """Of all values of the window; 0 without any."""
        self._age()
        (older, older_total, _), (newer, newer_total, _) = self._halves
        return (older_total + newer_total) / max(older + newer, 1)

    @property
    def longest(self) -> float:
        """The largest value of the window; 0 without any."""
        self._age()
        return max(half[2] for half in self._halves)

    @property
    def idle_ratio(self) -> float:
        """Part of the window that the values, as times in ms, do not fill: 1 for all of it."""
        self._age()
        began_ms = max(self._began_ms - self._window_ms // 2, self._since_ms)
        passed_ms = self._clock.monotonic_ms() - began_ms
        busy_ms = self._halves[0][1] + self._halves[1][1]
        return 1.0 if passed_ms <= 0 else max(0.0, 1.0 - busy_ms / passed_ms)

    def _age(self) -> None:
        now_ms = self._clock.monotonic_ms()
        passed = (now_ms - self._began_ms) * 2 // self._window_ms
        if passed > 0:
            nothing = (0, 0.0, 0.0)
            self._halves = (self._halves[1] if passed == 1 else nothing), nothing
            self._began_ms += passed * self._window_ms // 2
