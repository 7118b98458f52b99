"""Offsets of a table's commits in files of their own."""

import pytest

from pipeline.errors import DamagedDataError, PipelineError
from pipeline.jobs.delta_table import OffsetFiles
from pipeline.jobs.values import Committed
from tests.support.export.places import MemoryPlace
from tests.support.export.topics import IDENTITY

SAID = Committed(IDENTITY, {0: 12, 1: 0, 3: 77}, {0: 3, 3: 0})


def test_what_is_written_is_read_and_written_again_it_stays() -> None:
    place = MemoryPlace()
    files = OffsetFiles(place)
    files.write(7, "4711", SAID)
    stored = dict(place.stored)
    files.write(7, "4711", SAID)
    assert files.read(7, "4711") == SAID
    assert place.stored == stored
    assert place.names("offsets") == ["00000000000000000007-4711.json"]


def test_a_file_is_never_written_over_with_other_offsets() -> None:
    files = OffsetFiles(MemoryPlace())
    files.write(7, "4711", SAID)
    with pytest.raises(PipelineError, match=r"0007-4711\.json has other offsets than this run"):
        files.write(7, "4711", Committed(IDENTITY, {0: 13}))
    assert files.read(7, "4711") == SAID


def test_a_file_that_is_gone_is_an_error_by_name() -> None:
    with pytest.raises(DamagedDataError, match=r"offsets/0{19}7-4711\.json is not there"):
        OffsetFiles(MemoryPlace()).read(7, "4711")
