"""A few promises, for a way to a store of which only `make prove` asks all of them."""

from collections.abc import Callable, Sequence

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.contract import AllPromises

Promise = Callable[[AllPromises, RemoteStorageManager], None]

FEW: Sequence[Promise] = (
    AllPromises.test_a_copied_segment_reads_back_byte_for_byte,
    AllPromises.test_ranges_are_inclusive_at_both_ends,
    AllPromises.test_a_deleted_segment_is_gone,
    AllPromises.test_a_claim_is_read_as_it_was_last_written,
)
"""Copies, reads whole and in ranges, deletes, claims."""


class AFewPromises:
    """Each of `FEW` is a test. Inherit, and give a fixture `manager`."""

    @pytest.mark.parametrize(
        "promise", FEW, ids=lambda promise: promise.__name__.removeprefix("test_")
    )
    def test_it_is_kept(self, promise: Promise, manager: RemoteStorageManager) -> None:
        promise(AllPromises(), manager)
