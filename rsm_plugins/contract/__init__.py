"""Every promise of `RemoteStorageManager`, as methods that need nothing but the standard library.

`rsm_plugins.testing` makes tests of them, `tidemark rsm check` asks them of a live store.
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
    """What every storage plugin promises."""
