"""What one start may make of one damaged file: held against the promises, and nothing else."""

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from crc32c import crc32c

from kafka_protocol.files import offset_checkpoint
from local_log.errors import CorruptMessage
from local_log.manager.log_dir import INCARNATION_HISTORY
from local_log.recovery.acceptance import ACCEPTED
from tests.support.damage.bits import TIERED, Base, Batch, Found, Lane, Promised, Served
from tests.support.damage.places import Damaged
from tests.support.damage.table import (
    CHECKSUM,
    EARLIER,
    OFFLINE,
    TABLE,
    UNTOLD,
    WHOLE,
    Allowed,
    Damage,
    Outcome,
    Scope,
)
from tests.support.damage.table import PLAIN as KIND_PLAIN
from tests.support.damage.table import TIERED as KIND_TIERED
from tests.support.damage.whole_starts import METADATA

_RECORDS = re.compile(r"\d{20}\.log")
MAGIC_AT, EPOCH = 16, range(12, 16)
_REMOVED = (".deleted", ".cleaned")
_NOT_TRUTH = (".txnindex", "index.swap", ".deleted", ".cleaned", ".cut")
"""Made from a segment, or no part of the log; the damage table has no row of them."""


def validate(base: Base, case: Damaged, found: Found) -> list[str]:
    """Whatever must not be; empty: all is well."""
    wrong = _deleted_records(base, case, found)
    if found.refused:
        file = f"{METADATA}/meta.properties"
        if case.file != file or file not in found.refused:
            wrong.append(f"no start: {found.refused}")
        return wrong
    for lane, known in base.promised.items():
        outcome, why = _outcome(base, case, lane, known, found.partitions[lane])
        if outcome not in _allowed(base, case, lane, known):
            wrong.append(f"{lane[0]}-{lane[1]} is {outcome and outcome.value}: {why}")
    return wrong


def _outcome(
    base: Base, case: Damaged, lane: Lane, known: Promised, seen: Served | str | Exception
) -> tuple[Outcome | None, str]:
    hit = _hit(case, known)
    if isinstance(seen, CorruptMessage) and hit is not None:
        [position] = re.findall(r"at byte (\d+) of", str(seen))  # behind a changed length anywhere
        return (CHECKSUM if int(position) >= hit.position else None), str(seen)
    if isinstance(seen, Exception):
        return None, f"raised {seen!r}"
    if isinstance(seen, str):
        return OFFLINE, seen
    if hit is not None and hit.offset >= known.flushed and seen.end == hit.offset:
        known = _without_last(known)  # what was never flushed is cut before the damage
    differs = _differences(known, seen, hit)
    if not differs:
        return WHOLE, ""
    if differs == ["start"] and seen.start < known.start:
        return EARLIER, ""
    if differs == ["unknown start"]:
        return OFFLINE, "error 9 until the tier knows"
    if hit is not None and set(differs) <= {"batches", "end", "aborted"}:
        there = case.data[hit.position : hit.end]
        wanted = [there if one == hit.data else one for one in _served(known, seen.start)]
        is_wrong = crc32c(there[21:]) != int.from_bytes(there[17:21], "big")
        if differs == ["batches"] and seen.batches == wanted and is_wrong:
            return CHECKSUM, ""
        if _is_untold(base, case, known, hit, seen, wanted):
            return UNTOLD, ""
    return None, f"{differs}: {seen}"


def _is_untold(
    base: Base, case: Damaged, known: Promised, hit: Batch, seen: Served, wanted: list[bytes]
) -> bool:
    """A bit of base offset, length, epoch or magic of a batch: outside of its checksum."""
    inside = known.in_file(hit.file)
    if case.bit is None:  # a cleaner may have taken the batches that are gone
        kept = [b for b in known.batches if b.file != hit.file or b.offset < hit.offset]
        return (
            known.is_sparse
            and case.at == hit.position
            and hit.file != known.batches[-1].file
            and seen.end == known.end
            and seen.batches == [batch.data for batch in kept]
        )
    if case.at - hit.position > MAGIC_AT:
        return False
    if case.at - hit.position in EPOCH and seen.end == known.end:
        return seen.batches == wanted  # whichever batch: its neighbours may be of that epoch
    if hit is known.batches[-1] and known.is_sparse:
        return seen.end > known.end  # offsets may be missing before it
    following = [batch.offset for batch in known.batches if batch.offset > hit.offset]
    if hit is inside[-1] and following and following[0] > hit.next_offset:
        return seen.batches == wanted and seen.end == known.end  # it may lie in the hole behind it
    # The first batch of a segment that a cleaner worked on may begin anywhere above its name.
    begins_at = int.from_bytes(case.data[hit.position : hit.position + 8], "big")
    is_first_seen = hit is inside[0] and not (known.is_sparse and begins_at > hit.offset)
    is_looked_at = is_first_seen or hit is inside[-1]
    before = [batch.data for batch in known.batches if seen.start < batch.next_offset <= hit.offset]
    return (
        not is_looked_at
        and (base.is_clean or inside[-1].next_offset <= known.flushed)
        and seen.end == known.end
        and seen.batches[: len(before)] == before
    )


def _hit(case: Damaged, known: Promised) -> Batch | None:
    """The acknowledged batch that the damage lies in."""
    file = case.file.removesuffix(".swap")
    found = [b for b in known.in_file(file) if b.position <= case.at < b.end]
    return found[0] if found else None


def _without_last(known: Promised) -> Promised:
    *kept, _ = known.batches
    return replace(known, batches=kept, last_sequence=known.last_sequence - 2)


def _served(known: Promised, start: int) -> list[bytes]:
    return [batch.data for batch in known.batches if batch.next_offset > start]


def _differences(known: Promised, seen: Served, hit: Batch | None) -> list[str]:
    epochs = {
        batch.offset: (epoch, int.from_bytes(batch.data[12:16], "big"))
        for epoch, batch in zip(seen.epochs, known.batches, strict=False)
        if batch.offset >= known.start and batch is not hit
    }
    facts = {
        "unknown start": seen.is_start_known,
        "start": seen.start == known.start or not seen.is_start_known,
        "end": seen.end == known.end,
        "batches": seen.batches == _served(known, seen.start),
        "aborted": seen.aborted == known.aborted,
        "last sequence": seen.last_sequence == known.last_sequence,
        "epochs": all(one == other for one, other in epochs.values()),
    }
    return [what for what, is_right in facts.items() if not is_right]


# ------------------------------------------------------------------ what is allowed


def _allowed(base: Base, case: Damaged, lane: Lane, known: Promised) -> Allowed:
    """What the damage table says, and of segments what that knows nothing of."""
    if not _concerns(case, known):
        return frozenset({WHOLE})
    name = Path(case.file).name
    damage = Damage.CUT if case.bit is None else Damage.FLIPPED
    if name == ACCEPTED:
        return frozenset({WHOLE, OFFLINE})
    if name.endswith(_NOT_TRUTH) or name == offset_checkpoint.CLEANER_OFFSETS:
        return frozenset({WHOLE})
    topic = KIND_TIERED if lane == TIERED else KIND_PLAIN
    scope = Scope.PARTITION if case.file.startswith(f"{known.home}/") else Scope.DIRECTORY
    found = frozenset[Outcome]()
    for row in TABLE:
        is_meant = row.scope is scope and topic in row.topics
        if is_meant and row.pattern != "." and fnmatch(name.removesuffix(".swap"), row.pattern):
            found |= row.allowed[damage]
    assert found, f"no row for {case.file}"
    if name.endswith((".log", ".log.swap")):
        return found | _of_segment(base, case, known)
    if name == INCARNATION_HISTORY:
        return found | {WHOLE}  # the newline at its end, and lives before the last one
    if name == offset_checkpoint.LOG_STARTS and lane == TIERED:
        return found | {OFFLINE}
    return found


def _of_segment(base: Base, case: Damaged, known: Promised) -> Allowed:
    hit = _hit(case, known)
    is_replaced = f"{case.file}.swap" in base.files
    if hit is None or is_replaced or hit.next_offset <= known.start or hit.offset >= known.flushed:
        return frozenset({WHOLE, UNTOLD})
    return frozenset({UNTOLD})


def _concerns(case: Damaged, known: Promised) -> bool:
    place = str(Path(case.file).parent)
    return place in (known.home, known.home.split("/")[0])


def _deleted_records(base: Base, case: Damaged, found: Found) -> list[str]:
    before = record_bytes({**base.files, case.file: case.data})
    after = record_bytes(found.files)
    lost = before - after - _torn_bytes(base, case)
    return [f"{before - after} bytes of records were deleted"] if lost > 0 else []


def _torn_bytes(base: Base, case: Damaged) -> int:
    """Of a last batch that is incomplete and was never flushed: it may be cut off in place."""
    for known in base.promised.values():
        last = known.batches[-1]
        if case.file == last.file and last.offset >= known.flushed and case.at >= last.position:
            return len(case.data) - last.position
    return 0


def record_bytes(files: Mapping[str, bytes]) -> int:
    """Of all that is or was a part of a log, and does not wait for its removal."""
    return sum(
        len(data)
        for name, data in files.items()
        if _RECORDS.search(name) and not name.endswith(_REMOVED) and "-delete/" not in name
    )
