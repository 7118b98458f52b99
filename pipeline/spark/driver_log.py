"""Lines for the driver's log.

Spark plans in Python processes of its own, whose stderr is the driver's: without a handler their
INFO lines would be lost.
"""

import logging
import sys
from typing import Final

from pipeline.values import PlanFacts

_NAME: Final = "pipeline.spark"
_LINE: Final = "%(asctime)s %(levelname)s tidemark: %(message)s"


def driver_log() -> logging.Logger:
    """The source's logger; to stderr where nobody has said otherwise."""
    log = logging.getLogger(_NAME)
    if not log.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_LINE, "%y/%m/%d %H:%M:%S"))  # as Spark's own
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    return log


def say_plan(what: str, splits: int, facts: PlanFacts) -> None:
    """One line on a plan, and one for each note and warning."""
    log = driver_log()
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
        log.info("%s: %s", what, note)
    for warning in facts.warnings:
        log.warning("%s: %s", what, warning)
    if facts.lost_offsets:
        log.warning(
            "%s: %d offsets are lost and were skipped (failOnDataLoss=false)",
            what,
            facts.lost_offsets,
        )
