"""A storage plugin that kills its tier, or the broker, at one named point of the tier's work.

It runs in the tier process, where it puts itself around the methods that do what the rows "claim"
and "leader change" of docs/tiering.md §3 list, and around each effect of a pass. Armed by a file of
JSON, which it takes away before the SIGKILL: the next tier runs as usual.
"""

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rlm.maintenance.incarnation import Incarnations
from rlm.maintenance.performer import Performer
from rlmm.topic_based.engine import MetadataEngine
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.settings import Setting, text

CLASS_NAME = "tests.support.brokers.kill_points:KillingStore"
ORDER_KEY = "rsm.config.kill.order"

POINTS = (
    "read claim",
    "note claim",
    "write claim",
    "take incarnation",
    "send barrier",
    "read barrier back",
    "Validate",
    "Recall",
    "ReadEpochs",
    "Restore",
    "MoveStart",
    "Carry",
    "Report",
)
"""In the order in which a tier that starts on a lost chain and a lost log start comes to them."""

ON_LOST_FILES = frozenset({"ReadEpochs", "Restore", "MoveStart"})
"""Without a loss a tier does not come to these."""


def order(path: Path, point: str, *, is_done: bool, victim: str = "tier") -> None:
    """Have the next tier die; `victim` is `tier`, or `broker` for both."""
    path.write_text(json.dumps({"point": point, "is_done": is_done, "victim": victim}))


class KillingStore(LocalFsRemoteStorageManager):
    """The directory plugin, and the kill that was ordered."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        *LocalFsRemoteStorageManager.SETTINGS,
        text("kill.order", "Where the kill is ordered.", allowed="a path"),
    )

    def open_store(self, values: Any) -> ObjectStore:
        path = Path(values["kill.order"])
        if path.exists():
            _kill_at(path, json.loads(path.read_text()))
        return super().open_store(values)


def _kill_at(path: Path, ordered: Mapping[str, Any]) -> None:
    def at(point: str, is_done: bool) -> None:
        if (point, is_done) == (ordered["point"], ordered["is_done"]):
            path.unlink()
            if ordered["victim"] == "broker":
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: type, name: str, point_of: Callable[..., str]) -> None:
        inner = getattr(owner, name)

        def method(*args: Any, **more: Any) -> Any:
            point = point_of(*args)
            at(point, False)
            result = inner(*args, **more)
            at(point, True)
            return result

        setattr(owner, name, method)

    def settled(_engine: object, write: Any, _verdict: object) -> str:
        return "read barrier back" if write.ends_barrier else ""

    around(KillingStore, "read_claim", lambda *_: "read claim")
    around(Incarnations, "claim", lambda *_: "note claim")
    around(KillingStore, "write_claim", lambda *_: "write claim")
    around(Incarnations, "take", lambda *_: "take incarnation")
    around(MetadataEngine, "_write_barrier", lambda *_: "send barrier")
    around(MetadataEngine, "_settle_read_back", settled)
    around(Performer, "__call__", lambda _, effect: type(effect).__name__)
