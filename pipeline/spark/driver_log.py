"""Lines for the driver's log.

Spark plans in Python processes of its own, whose stderr is the driver's: without a handler their
INFO lines would be lost.
"""

import logging
import sys
from typing import Final

from pipeline.values import PlanFacts

_TEXTS_MAX: Final = 1_000
_NAME: Final = "pipeline.spark"
_LINE: Final = "%(asctime)s %(levelname)s tidemark: %(message)s"


def driver_log() -> logging.Logger:
    """The source's logger; to stderr where no handler is set."""
    log = logging.getLogger(_NAME)
    if not log.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_LINE, "%y/%m/%d %H:%M:%S"))  # as Spark's own
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    return log


class LoggedTexts:
    """Texts that were logged: a stream makes the same notes at each micro-batch.

    The newest 1,000 are remembered.
    """

    def __init__(self) -> None:
        """Nothing was logged yet."""
        self._texts: dict[str, None] = {}

    def is_new(self, text: str) -> bool:
        """Whether the text is asked about for the first time."""
        if text in self._texts:
            return False
        self._texts[text] = None
        if len(self._texts) > _TEXTS_MAX:
            del self._texts[next(iter(self._texts))]
        return True


def log_plan(what: str, splits: int, facts: PlanFacts, logged: LoggedTexts | None = None) -> None:
    """One line on a plan, and one for each note and warning.

    Args:
        what: is planned.
        splits: how many.
        facts: of the plan.
        logged: notes and warnings that need not be said again.
    """
    log = driver_log()
    logged = logged or LoggedTexts()
    log.info(
        "%s: tasks=%d segments_read=%d of=%d segments_skipped=%d remote_bytes=%d"
        " bytes_skipped=%d tail_offsets=%d",
        what,
        splits,
        facts.segments_read,
        facts.segments_known,
        facts.segments_skipped,
        facts.bytes_read,
        facts.bytes_skipped,
        facts.tail_offsets,
    )
    for note in facts.notes:
        if logged.is_new(note):
            log.info("%s: %s", what, note)
    for warning in facts.warnings:
        if logged.is_new(warning):
            log.warning("%s: %s", what, warning)
    if facts.lost_offsets:
        log.warning(
            "%s: %d offsets are lost and were skipped (failOnDataLoss=false)",
            what,
            facts.lost_offsets,
        )
