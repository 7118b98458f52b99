"""Every deletion that reached the store or a `.log` file, counted and explained."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.brokers.traffic import Lane
from tests.support.stores.audit import Auditor, directory_listing
from tests.support.walk.oracle import Piece, World
from tests.support.walk.store import CLASS_NAME, LEDGER_KEY

AUDIT_PROBE = "tidemark-audit-probe"


class Counting:
    """Follows what store and disk wrote down.

    Attributes:
        explained: how many pieces were deleted, by reason and place.
        aside: how many files recovery put aside.
    """

    def __init__(self, broker: DirectoriesBroker, world: World) -> None:
        self._broker, self._world = broker, world
        self._store, self._disk = broker.directory / "ledger", broker.directory / "taken"
        self._auditor = Auditor(broker, self._listing)
        self._positions = {self._store: 0, self._disk: 0}
        self._waiting: list[Piece] = []
        self._listed: set[str] = set()
        self.explained: Counter[str] = Counter()
        self.aside = 0
        broker.run_with("--taken", str(self._disk))
        broker.store = {
            "remote.log.storage.manager.class.name": CLASS_NAME,
            "rsm.config.dir": str(broker.remote_directory),
            LEDGER_KEY: str(self._store),
        }

    def bounds(self) -> dict[Lane, list[int]]:
        """Where segments of each partition begin, here and in the store."""
        self._read_store()
        found: dict[Lane, set[int]] = {}
        for piece in self._world.copied.values():
            found.setdefault(piece.lane, set()).update((piece.first, piece.last + 1))
        for lane in self._world.histories:
            local = self._broker.local_segments(*lane)
            found.setdefault(lane, set()).update(local)
        return {lane: sorted(offsets) for lane, offsets in found.items()}

    def judge(self) -> list[str]:
        """Explain all that was deleted since the last call; what nothing explains."""
        listed = {key for key in self._listing() if ".copying" not in key}
        self._read_store()
        complaints = list(self._read_disk())
        self._auditor.catch_up()
        self._world.finished |= self._auditor.finished
        for piece in self._waiting:
            reason = self._world.explain(piece)
            if reason is None:
                complaints.append(f"nothing explains the deletion of {piece}")
            else:
                self.explained[f"{'store' if piece.is_remote else 'log'}: {reason.value}"] += 1
        self._waiting.clear()
        return complaints + list(self._vanished(listed))

    def catch_up(self) -> None:
        """Read what was copied and finished; the broker runs."""
        self._read_store()
        self._auditor.catch_up()
        self._world.finished |= self._auditor.finished

    def forget_metadata(self) -> None:
        """The metadata topic was put back: its records count from its begin on.

        What was deleted before, and is not explained yet, is left out: the records are gone that
        might explain it.
        """
        self._read_store()
        list(self._read_disk())
        self._waiting.clear()
        self._auditor = Auditor(self._broker, self._listing)
        self._world.forget_metadata({_segment(key) for key in self._listing()} - {""})

    def disagreements(self, put_back: set[str]) -> list[str]:
        """Where store and metadata differ, but for objects that a damage brought back or hid."""
        stems = {key.rsplit(".", 1)[0] for key in put_back}
        return [
            text
            for text in self._auditor.disagreements()
            if not any(text == f"only in the store: {s}.{e}" for s in stems for e in _SUFFIXES)
            and not (text.startswith("only in the store") and _segment(text) in self._left_behind())
        ]

    def _left_behind(self) -> set[str]:
        return self._world.left_behind - self._auditor.finished

    # ------------------------------------------------------------------ reading

    def _listing(self) -> dict[str, int]:
        """The store's objects, at a moment when none vanishes under the listing."""

        def listing() -> list[dict[str, int]]:
            with suppress(FileNotFoundError):
                return [directory_listing(self._broker)]
            return []

        return until(listing, "the store can be listed")[0]

    def _vanished(self, now: set[str]) -> Iterator[str]:
        """Objects that are gone without a deletion; called when no damage hides any."""
        for key in sorted(self._listed - now):
            if _segment(key) not in self._world.deleted.keys() | self._left_behind():
                yield f"the object {key} is gone, and nobody deleted it"
        self._listed = now

    def _read_store(self) -> None:
        for line in self._lines(self._store):
            if line["topic"] == AUDIT_PROBE:
                continue  # a few bytes by which `remote audit` reads the store's clock
            lane = line["topic"], line["partition"]
            name = line["segment"]
            piece = Piece(lane, name, line["first"], line["last"], line["ms"], is_remote=True)
            if line["what"] == "copied":
                self._world.copied[name] = piece
            elif name not in self._world.deleted:
                self._world.deleted[name] = piece.ms
                self._waiting.append(piece)

    def _read_disk(self) -> Iterator[str]:
        for line in self._lines(self._disk):
            topic, _, number = line["partition"].rpartition("-")
            if topic == "__cluster_metadata":
                continue  # its segments go when a snapshot holds what they say
            lane = topic, int(number)
            piece = Piece(lane, line["file"], line["first"], line["last"], line["ms"])
            if line["what"] == "aside":
                self.aside += 1
            elif line["what"] == "deleted":
                self._waiting.append(piece)
            elif not self._is_kept(line):
                yield f"cut off without a copy: {piece}"

    def _is_kept(self, line: dict[str, Any]) -> bool:
        """Whether what was cut off lies in a `.cut` file beside the segment."""
        return any(
            list(directory.glob(f"{line['partition']}/{line['file']}*.cut"))
            for directory in self._broker.log_directories
        )

    def _lines(self, file: Path) -> Iterator[dict[str, Any]]:
        if not file.exists():
            return
        with file.open("rb") as source:
            source.seek(self._positions[file])
            for line in source:
                if not line.endswith(b"\n"):
                    break
                self._positions[file] += len(line)
                yield json.loads(line)


def _segment(key: str) -> str:
    """Id of the segment whose object a key names."""
    found = re.search(r"/\d{20}-([\w-]{22})\.", key)
    return found[1] if found else ""


_SUFFIXES = ("log", "indexes", "manifest")
