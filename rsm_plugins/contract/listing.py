"""Promises of plugins that list their objects (`ObjectLister`), which audits need."""

from collections.abc import Sequence
from unittest import SkipTest

from rsm_plugins.api import ObjectLister, RemoteStorageManager
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import LOG_BYTES
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectNames, object_names
from rsm_plugins.segment import RemoteLogSegmentMetadata


class ListingPromises(Promises):
    """Promises about listings. Only the scratch topic's part of the store is listed."""

    def test_every_object_of_a_segment_is_listed(self, manager: RemoteStorageManager) -> None:
        """A listing shows every object of a copied segment, once, in order, with its size."""
        lister = _lister(manager)
        for number in (1, 2):
            names = _names(manager, self.copied(manager, self.segment(number)))
            found = list(lister.list_objects(names.base))
            keys = [one.key for one in found]
            wanted = sorted(_keys(names))
            expect.that(keys == wanted, f"listed is {keys}; copied were {wanted}")
            sizes = {one.key: one.size_bytes for one in found}
            size = sizes[names.log]
            expect.that(size == len(LOG_BYTES), f"{names.log} is listed with {size} bytes")
            expect.that(min(sizes.values()) > 0, f"an object is listed as empty: {sizes}")
            expect.that(all(isinstance(one.modified_ms, int) for one in found), "no time is listed")

    def test_nothing_is_listed_after_delete(self, manager: RemoteStorageManager) -> None:
        """After a deletion nothing of the segment is listed, and its neighbour is."""
        lister = _lister(manager)
        one, two = (self.copied(manager, self.segment(number)) for number in (1, 2))
        manager.delete_log_segment_data(one)
        left = [found.key for found in lister.list_objects(_names(manager, one).base)]
        expect.that(not left, f"deleted, and listed: {left}")
        kept = [found.key for found in lister.list_objects(_names(manager, two).base)]
        expect.that(len(kept) == 3, f"of the neighbour of a deleted segment is listed {kept}")

    def test_a_listing_is_filtered_by_prefix(self, manager: RemoteStorageManager) -> None:
        """A listing shows the keys that begin with the prefix, also where it ends inside a name."""
        lister = _lister(manager)
        copies = [self.copied(manager, self.segment(partition=number)) for number in (1, 11)]
        names = [_names(manager, copied) for copied in copies]
        ours = sorted(key for one in names for key in _keys(one))
        folder = names[0].directory
        for prefix in (
            folder,
            f"{folder}/",
            f"{names[1].directory}/",
            names[0].base[:-5],
            names[1].log,
            f"{names[1].log}x",
        ):
            got = [found.key for found in lister.list_objects(prefix)]
            foreign = [key for key in got if not key.startswith(prefix)]
            expect.that(not foreign, f"prefix {prefix!r} lists {foreign}, which begin otherwise")
            wanted = [key for key in ours if key.startswith(prefix)]
            got_ours = [key for key in got if key in ours]
            expect.that(got_ours == wanted, f"prefix {prefix!r} lists {got_ours}, not {wanted}")


def _lister(manager: RemoteStorageManager) -> ObjectLister:
    if not isinstance(manager, ObjectLister):
        raise SkipTest("the plugin has no list_objects: audits cannot look into its store")
    return manager


def _names(manager: RemoteStorageManager, metadata: RemoteLogSegmentMetadata) -> ObjectNames:
    if isinstance(manager, LayoutStorageManager):
        return manager.places(metadata)[0]
    return object_names(metadata)


def _keys(names: ObjectNames) -> Sequence[str]:
    return (names.log, names.indexes, names.manifest)
