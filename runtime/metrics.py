"""Numbers about the process, cheap to count and printed in Prometheus' text format.

The hot path adds to a bound child (`counter.labels("orders").inc(n)`): one attribute addition.
Gauges may be functions that are asked only when somebody looks. Values of another process (the
tier) are merged in as finished samples.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

DEFAULT_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


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

    __slots__ = ("_children", "help", "label_names", "name")
    type = "counter"

    def __init__(self, name: str, help: str, label_names: Sequence[str] = ()) -> None:
        self.name, self.help, self.label_names = name, help, tuple(label_names)
        self._children: dict[tuple[str, ...], CounterChild] = {}
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
        """What was counted so far, 0 for labels never seen."""
        child = self._children.get(labels)
        return 0 if child is None else child.value

    def remove(self, *labels: str) -> None:
        """Forget a child, such as that of a deleted topic."""
        self._children.pop(labels, None)

    def samples(self) -> Iterable[Sample]:
        """One sample a child."""
        for labels, child in list(self._children.items()):
            labelled = dict(zip(self.label_names, labels, strict=True))
            yield Sample(self.name, self.type, self.help, labelled, child.value)


GaugeFn = Callable[[], float | Mapping[tuple[str, ...], float]]


class Gauge:
    """A number that goes up and down, set or asked for.

    With `fn` it is asked when samples are made: a number, or with labels a mapping from label
    values.
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

    def samples(self) -> Iterable[Sample]:
        """One sample a combination of label values."""
        values: Mapping[tuple[str, ...], float] = dict(self._values)
        if self._fn is not None:
            answer = self._fn()
            values = answer if isinstance(answer, Mapping) else {(): answer}
        for labels, value in values.items():
            labelled = dict(zip(self.label_names, labels, strict=True))
            yield Sample(self.name, self.type, self.help, labelled, value)


class _HistogramChild:
    __slots__ = ("buckets", "count", "sum")

    def __init__(self, bucket_count: int) -> None:
        self.buckets = [0] * bucket_count
        self.count = 0
        self.sum: float = 0


class Histogram:
    """How values are spread, in cumulative buckets with inclusive upper bounds."""

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
        self._children: dict[tuple[str, ...], _HistogramChild] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Count one value."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = _HistogramChild(len(self._bounds) + 1)
        child.buckets[bisect_left(self._bounds, value)] += 1
        child.count += 1
        child.sum += value

    def samples(self) -> Iterable[Sample]:
        """Buckets, sum and count of each child."""
        for labels, child in list(self._children.items()):
            labelled = dict(zip(self.label_names, labels, strict=True))
            below = 0
            for bound, count in zip((*self._bounds, float("inf")), child.buckets, strict=True):
                below += count
                le = {"le": "+Inf" if bound == float("inf") else _number(bound)}
                yield Sample(f"{self.name}_bucket", self.type, self.help, labelled | le, below)
            yield Sample(f"{self.name}_sum", self.type, self.help, labelled, child.sum)
            yield Sample(f"{self.name}_count", self.type, self.help, labelled, child.count)


Metric = Counter | Gauge | Histogram


class Registry:
    """All metrics of a process; asking twice for a name gives the same metric."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._remote: list[Sample] = []

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
        """A number that is set, or asked of `fn` when somebody looks."""
        metric = self._add(Gauge(name, help, labelnames, fn))
        assert isinstance(metric, Gauge)
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

    def merge_remote(self, samples: Iterable[Sample | Sequence[object]]) -> None:
        """Replace what another process last reported."""
        self._remote = [Sample(*sample) for sample in samples]

    def samples(self) -> list[Sample]:
        """Every value of this process and of the one merged in."""
        own = [sample for metric in self._metrics.values() for sample in metric.samples()]
        return own + self._remote

    def render(self) -> bytes:
        """The page that Prometheus scrapes (text format 0.0.4).

        Source: prometheus.io, Exposition formats.
        """
        families: dict[str, list[Sample]] = {}
        for sample in self.samples():
            families.setdefault(_family(sample), []).append(sample)
        lines: list[str] = []
        for name, members in families.items():
            lines.append(f"# HELP {name} {_escape_help(members[0].help)}")
            lines.append(f"# TYPE {name} {members[0].type}")
            lines.extend(_line(sample) for sample in members)
        return "".join(f"{line}\n" for line in lines).encode()


def _family(sample: Sample) -> str:
    if sample.type == "histogram":
        return sample.name.rsplit("_", 1)[0]
    return sample.name


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


def _line(sample: Sample) -> str:
    value = _value(sample.value)
    if not sample.labels:
        return f"{sample.name} {value}"
    pairs = ",".join(
        '{}="{}"'.format(key, _escape_help(str(text)).replace('"', '\\"'))
        for key, text in sample.labels.items()
    )
    return f"{sample.name}{{{pairs}}} {value}"
