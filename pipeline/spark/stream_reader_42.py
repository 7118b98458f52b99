"""The stream reader for PySpark 4.2 and newer: rate limits, Trigger.AvailableNow, reports."""

from collections.abc import Mapping

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pipeline.errors import without_stack
from pipeline.spark.limits import Rates
from pipeline.spark.options_values import from_map, to_map
from pipeline.spark.stream_reader import PlainStreamReader
from runtime.override import override


class LimitedStreamReader(PlainStreamReader, SupportsTriggerAvailableNow):
    """Spark says where a micro-batch starts, so limits can be kept."""

    @without_stack
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """No limit has two bounds, so `latestOffset` reads the options itself."""
        rates = self._driver().rates
        if rates.most is not None:
            return ReadMaxRows(rates.most)
        return ReadAllAvailable() if rates.least is None else ReadMinRows(rates.least)

    @override
    @without_stack
    def latestOffset(  # type: ignore[override]  # noqa: N802 - Spark's name
        self, start: Mapping[str, object], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        limited = not isinstance(limit, ReadAllAvailable)
        return to_map(self._driver().latest(from_map(start), limited=limited))

    @override
    @without_stack
    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        found = self._driver().latest_seen()
        return None if found is None else to_map(found)

    @override
    @without_stack
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._driver().stop_at_what_is_there()

    def _check_version(self, rates: Rates) -> None:
        """This version can do all."""
