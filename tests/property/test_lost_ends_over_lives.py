"""A log over many lives, perhaps put back from a copy: red exactly where an offset was given twice.

A naive twin keeps what each offset held when it was given. Lives are killed with or without a
validation; nothing is named in the remote metadata by an owner that was not validated sound.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from rlm.link.messages import Loss
from rlm.maintenance.log_validation import Unhealthy, Validated, validate_log
from rlmm.api import PartitionHistory, SegmentHistory
from rlmm.lifecycle import OffsetsByEpoch, raised
from rsm_plugins.segment import SegmentState
from tests.support.tier.partition_facts import log, segment

STARTED = SegmentState.COPY_SEGMENT_STARTED


@dataclass
class Files:
    """What a directory holds: of each offset its value and epoch; and where epochs begin."""

    values: list[tuple[int, int]] = field(default_factory=list)
    chain: list[tuple[int, int]] = field(default_factory=list)

    def copy(self) -> "Files":
        return Files(list(self.values), list(self.chain))


@dataclass
class World:
    keeps_segments: bool
    files: Files = field(default_factory=Files)
    older: Files = field(default_factory=Files)
    epoch: int = -1
    opened_at: int = 0
    is_sound: bool = False
    next_value: int = 0
    given_ends: OffsetsByEpoch = ()
    log_starts: OffsetsByEpoch = ()
    segments: list[SegmentHistory] = field(default_factory=list)
    given: dict[int, int] = field(default_factory=dict)
    has_come_back: bool = False

    def start(self) -> None:
        """Killed and started: nothing of the life before is known but its files."""
        end = len(self.files.values)
        self.epoch += 2
        self.files.chain = [entry for entry in self.files.chain if entry[1] < end]
        self.files.chain.append((self.epoch, end))
        self.opened_at, self.is_sound = end, False

    def append(self, count: int) -> None:
        for _ in range(count):
            self.files.values.append((self.next_value, self.epoch))
            self.next_value += 1

    def validate(self) -> None:
        mine = log(
            end=len(self.files.values),
            chain=tuple(self.files.chain),
            leader_epoch=self.epoch,
            unvalidated_end=-1 if self.is_sound else self.opened_at,
        )
        history = PartitionHistory(
            dict(self.log_starts), dict(self.given_ends), -1, self.epoch, tuple(self.segments)
        )
        verdict = validate_log(mine, history)
        here = [value for value, _ in self.files.values]
        is_lost = any(
            offset >= len(here) or here[offset] != value for offset, value in self.given.items()
        )
        if is_lost:
            assert isinstance(verdict, Unhealthy), verdict
            assert verdict.loss is Loss.LOG_END
        else:
            assert isinstance(verdict, Validated), verdict
        self.is_sound = not is_lost

    def name(self, size: int, *, by_log_start: bool) -> None:
        """An owner that was validated sound announces a segment, or carries a log start."""
        if not self.is_sound or not self.files.values:
            return
        end = len(self.files.values)
        first = max(end - size, 0)
        self.given |= {offset: self.files.values[offset][0] for offset in range(end)}
        if by_log_start:
            self.log_starts = raised(self.log_starts, self.epoch, end)
            return
        self.given_ends = raised(self.given_ends, self.epoch, end)
        if self.keeps_segments:
            epochs = [epoch for _, epoch in self.files.values[first:]]
            spans = [(e, first + epochs.index(e)) for e in sorted(set(epochs))]
            state = SegmentState.COPY_SEGMENT_STARTED
            self.segments.append(
                segment(first, end - 1, tuple(spans), under=self.epoch, state=state)
            )

    def put_back(self) -> None:
        """An older copy; only once where nothing but the highest given end is remembered."""
        if not self.has_come_back:
            self.files, self.has_come_back = self.older.copy(), True
        self.start()


STEPS = ("start", "append", "validate", "name", "carry", "copy", "put back")


@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 9)), max_size=60),
)
def test_unhealthy_where_an_offset_was_given_twice_and_nowhere_else(
    keeps_segments: bool, steps: list[tuple[str, int]]
) -> None:
    world = World(keeps_segments)
    world.start()
    for step, count in steps:
        match step:
            case "start":
                world.start()
            case "append":
                world.append(count)
            case "validate":
                world.validate()
            case "name":
                world.name(count, by_log_start=False)
            case "carry":
                world.name(count, by_log_start=True)
            case "copy":
                world.older = world.files.copy()
            case _:
                world.put_back()
    world.start()
    world.validate()
