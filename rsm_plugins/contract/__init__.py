"""The promises of `RemoteStorageManager`, as methods that need only the standard library.

`rsm_plugins.testing` makes tests of them; `tidemark rsm check` checks them on a live store.
"""

from rsm_plugins.contract.claiming import ClaimPromises
from rsm_plugins.contract.concurrency import ThreadPromises
from rsm_plugins.contract.copying import CopyPromises, DeletePromises
from rsm_plugins.contract.failing import FailurePromises
from rsm_plugins.contract.indexes import IndexPromises
from rsm_plugins.contract.listing import ListingPromises
from rsm_plugins.contract.naming import NamePromises
from rsm_plugins.contract.reading import RangePromises, StreamPromises
from rsm_plugins.contract.repeating import RepeatPromises


class AllPromises(
    CopyPromises,
    RangePromises,
    StreamPromises,
    IndexPromises,
    DeletePromises,
    NamePromises,
    ThreadPromises,
    FailurePromises,
    RepeatPromises,
    ListingPromises,
    ClaimPromises,
):
    """The promises of every storage plugin."""
