"""Pages of this process's metrics, handed out in pieces."""

from collections.abc import Iterator

from rlm.link.messages import DescribeMetrics, MetricsPiece
from runtime.metrics import Registry


class MetricsPages:
    """Makes one page at a time: whoever asks for the next one has no use for the one before."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._number = 0
        self._pieces: Iterator[bytes] = iter(())

    def piece(self, asked: DescribeMetrics) -> MetricsPiece:
        """The next piece of the asked page."""
        if asked.page != self._number:
            self._number, self._pieces = asked.page, self._registry.pieces()
        content = next(self._pieces, None)
        return MetricsPiece(content or b"", is_last=content is None)
