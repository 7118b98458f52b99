"""One replica of the simulated quorum: a core, its disk, and what is under way between them."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafka_protocol.errors import ErrorCode
from metadata_topic.raft import effects as fx
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.events import (
    Answered,
    ChunkWritten,
    Event,
    Flushed,
    Persisted,
    Received,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    Truncated,
)
from metadata_topic.raft.messages import (
    BOOTSTRAP_ID,
    BatchFacts,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
    Standing,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey
from tests.support.raft.batch_index import Batch
from tests.support.raft.disk_time import DiskTime
from tests.support.raft.errors import Violation
from tests.support.raft.model_disk import PAYLOAD_BYTES, ModelDisk

if TYPE_CHECKING:
    from tests.support.raft.world import World

Route = tuple["SimNode", int, int]
"""Who asked, in which life, under which number."""


class SimNode:
    """See the module.

    Attributes:
        life: rises with each crash; what belongs to another life is dropped.
        pending: requests without an answer, by token.
        durable: number of the last `Persist` on disk in this life.
        crash_after: the node crashes after so many effects of its next step with more, and is down
            for `down_ms`.
    """

    def __init__(self, world: "World", node_id: int, disk: ModelDisk, config: RaftConfig) -> None:
        self.world = world
        self.id = node_id
        self.disk = disk
        self.config = config
        self.life = 0
        self.disk_number = 0
        self.up = False
        self.paused_until = 0
        self.log_is_slow_until = 0
        self.state_is_slow_until = 0
        self.disk_time = DiskTime(self)
        self.clock_offset_ms = 0
        self.clock_rate = 1000
        self.leader_log_start = 0
        self.crash_after: int | None = None
        self.down_ms = 0
        self.restarts_after_close = True
        self.core: Any = None
        self._forget()

    def _forget(self) -> None:
        self.durable = 0
        self.known_high_watermark = -1
        self.pending: dict[int, tuple[Route, Request]] = {}
        self.sends: dict[int, Request] = {}
        self.closing = False
        self.refused = False
        self.snapshotting = False
        self._persists: list[fx.Persist] = []
        self._persisting: fx.Persist | None = None
        self._held: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self._token = 0
        self._wake_ms: int | None = None
        self._tick_at: int | None = None
        self.flushing: int | None = None
        self.truncating: int | None = None
        self.installing: fx.InstallSnapshot | None = None
        self.disk_time.forget()

    def __repr__(self) -> str:
        return f"n{self.id}"

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.disk.directory)

    @property
    def leads(self) -> bool:
        return self.up and self.core.role is Role.LEADER

    def local_ms(self) -> int:
        """This node's clock."""
        return self.clock_offset_ms + self.world.now_us * self.clock_rate // 1_000_000

    def span_us(self, local_ms: int) -> int:
        """World's time for a span of this node's."""
        return local_ms * 1_000_000 // self.clock_rate

    # Lives

    def start(self) -> None:
        """Read the disk and begin a life."""
        assert not self.up
        self.up = True
        self._forget()
        self.core = self.world.make_core(self.key, self.config)
        self.world.oracle.started(self)
        self.step(self.disk.started(self.world.core_dice.random()))

    def crash(self) -> None:
        """End this life; dice say what of the work under way the disk has."""
        assert self.up
        dice = self.world.disk_dice
        disk = self.disk
        self.up = False
        self.life += 1
        self.crash_after = None
        self.paused_until = 0
        if self._persisting is not None and dice.random() < 0.4:
            disk.election = self._persisting.election
        if self.installing is not None and dice.random() < 0.4:
            self._install(self.installing)
        elif self.truncating is not None and dice.random() < 0.4:
            disk.truncate(self.truncating)
        unflushed = disk.unflushed_batches
        disk.crash(dice.randrange(unflushed + 1) if unflushed else 0)
        self.world.oracle.crashed(self)

    def stop(self) -> None:
        """End this life in an orderly way."""
        self.disk.flushed_end = self.disk.end_offset
        self.crash()

    # Events

    def step(self, event: Event) -> None:
        """Give the core an event and carry out its effects."""
        world = self.world
        named = world.oracle.named_leader(self, event)
        try:
            effects = self.core.step(event, self.local_ms())
        except Exception as error:
            raise Violation("the core fails", f"{self}: {type(error).__name__}: {error}") from error
        world.note(self, event, effects)
        world.oracle.effects_of(self, event, effects)
        world.oracle.follows(self, named, effects)
        life = self.life
        for place, effect in enumerate(effects):
            if self.crash_after is not None and place >= self.crash_after:
                world.tell(f"{self} crashes before effect {place}")
                self.crash()
                world.start_later(self, self.down_ms)
                return
            HANDLERS[effect.__class__](self, effect)
            if self.life != life:
                return
        world.oracle.after_step(self)

    def deliver(self, route: Route, request: Request) -> None:
        """A request has come."""
        self._token += 1
        self.pending[self._token] = (route, request)
        self.step(Received(self._token, request, self.world.core_dice.random()))

    def hear(self, number: int, response: Response | None) -> None:
        """An answer has come, or the time for it is over."""
        if self.sends.pop(number, None) is None:
            return
        self.step(Answered(number, response, self.world.core_dice.random()))

    # Quorum-state

    def _persist(self, effect: fx.Persist) -> None:
        self.world.oracle.persists(self, effect)
        self._persists.append(effect)
        if self._persisting is None:
            self._write_quorum_state()

    def _write_quorum_state(self) -> None:
        self._persisting = self._persists[-1]
        self._persists.clear()
        self.disk_time.later(self._quorum_state_is_written)

    def _quorum_state_is_written(self) -> None:
        written = self._persisting
        assert written is not None
        self._persisting = None
        self.disk.election = written.election
        self.durable = written.number
        if self._persists:
            self._write_quorum_state()
        held, self._held = self._held, []
        for after, carry_out, args in held:
            self._when_durable(after, carry_out, *args)
        self.step(Persisted(written.number))

    def _when_durable(self, after: int, carry_out: Callable[..., None], *args: Any) -> None:
        if after <= self.durable:
            carry_out(*args)
        else:
            self._held.append((after, carry_out, args))

    # Messages

    def _send(self, effect: fx.Send) -> None:
        world = self.world
        assert effect.number not in self.sends
        self.sends[effect.number] = effect.request
        ends = world.now_us + self.span_us(effect.timeout_ms)
        world.at_node(ends, self, self.hear, effect.number, None)
        self._when_durable(effect.after, world.net.request, self, effect)

    def _route(self, token: int) -> tuple[Route, Request]:
        if token not in self.pending:
            raise Violation("a request is answered once", f"{self}: token {token}")
        return self.pending.pop(token)

    def _respond(self, effect: fx.Respond) -> None:
        route, request = self._route(effect.token)
        self._when_durable(effect.after, self._answer, route, request, effect.response)

    def _answer(self, route: Route, request: Request, response: Response) -> None:
        self.world.oracle.answers(self, request, response)
        self.world.net.response(self, route, response)

    def _respond_records(self, effect: fx.RespondRecords) -> None:
        route, request = self._route(effect.token)
        self._when_durable(effect.after, self._read_records, effect, route, request)

    def _read_records(self, effect: fx.RespondRecords, route: Route, request: Request) -> None:
        if self.world.disk_dice.random() < self.world.slow_read_chance:
            self.disk_time.later(self._records_are_read, effect, route, request)
        else:
            self._records_are_read(effect, route, request)

    def _records_are_read(self, effect: fx.RespondRecords, route: Route, request: Request) -> None:
        core, disk, standing = self.core, self.disk, effect.standing
        if core.role is not Role.LEADER or core.epoch != standing.epoch:
            here = Standing(core.epoch, -1 if core.leader_id is None else core.leader_id)
            if core.replica.epoch_persist > self.durable:
                here = standing  # the new epoch is not on disk yet: nobody hears of it
            self._answer(route, request, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, here))
            return
        if effect.offset < disk.start_offset:
            self._answer(route, request, FetchResponse(ErrorCode.UNKNOWN_SERVER_ERROR, standing))
            return
        batches = disk.read(effect.offset, effect.end_offset, effect.max_bytes)
        response = FetchResponse(
            ErrorCode.NONE,
            standing,
            effect.high_watermark,
            effect.log_start_offset,
            batches=tuple(batch.facts for batch in batches),
            data=b"".join(batch.payload for batch in batches),
        )
        self._answer(route, request, response)

    def _respond_chunk(self, effect: fx.RespondChunk) -> None:
        route, request = self._route(effect.token)
        self._when_durable(effect.after, self._read_chunk, effect, route, request)

    def _read_chunk(self, effect: fx.RespondChunk, route: Route, request: Request) -> None:
        if effect.snapshot_id == BOOTSTRAP_ID:
            raise Violation("0-0 is never sent", f"{self} to {route[0]}")
        stored = self.disk.snapshots.get(effect.snapshot_id)
        if stored is None:
            response = FetchSnapshotResponse(
                ErrorCode.SNAPSHOT_NOT_FOUND, effect.standing, effect.snapshot_id
            )
        else:
            end = effect.position + effect.max_bytes
            response = FetchSnapshotResponse(
                ErrorCode.NONE,
                effect.standing,
                effect.snapshot_id,
                stored.file.size_bytes,
                effect.position,
                stored.content[effect.position : end],
            )
        self._answer(route, request, response)

    # The log

    def _append(self, effect: fx.Append) -> None:
        data = bytes(effect.data)
        assert len(data) == PAYLOAD_BYTES * len(effect.batches), "data and facts do not fit"
        payloads = [data[at : at + PAYLOAD_BYTES] for at in range(0, len(data), PAYLOAD_BYTES)]
        self._write(
            Batch(facts, payload) for facts, payload in zip(effect.batches, payloads, strict=True)
        )

    def _append_epoch_start(self, effect: fx.AppendEpochStart) -> None:
        base, said = effect.base_offset, effect.with_voters
        facts = BatchFacts(
            base,
            base + (3 if said else 1),
            effect.epoch,
            effect.kraft_version if said else None,
            effect.voters if said else None,
        )
        payload = b"L" + effect.epoch.to_bytes(4, "big") + effect.leader_id.to_bytes(3, "big")
        self._write([Batch(facts, payload)])

    def _write(self, batches: Iterable[Batch]) -> None:
        if self.truncating is not None or self.installing is not None:
            raise Violation("nothing is appended while the log is cut", f"{self}")
        for batch in batches:
            self.world.oracle.appends(self, batch)
            self.disk.append(batch)

    def _flush(self, effect: fx.FlushLog) -> None:
        if self.flushing is not None:
            raise Violation("one flush at a time", f"{self}")
        self.flushing = self.disk.end_offset
        self.disk_time.in_order(self._flushed, self.world.disk_dice.random() < 0.3)

    def _flushed(self, began_late: bool) -> None:
        assert self.flushing is not None
        disk = self.disk
        disk.flushed_end = max(disk.flushed_end, disk.end_offset if began_late else self.flushing)
        self.flushing = None
        self.step(Flushed(disk.flushed_end))

    def _truncate(self, effect: fx.TruncateLog) -> None:
        if self.truncating is not None or self.installing is not None:
            raise Violation("one change of the log at a time", f"{self}")
        self.world.oracle.truncates(self, effect.end_offset)
        self.truncating = effect.end_offset
        self.disk_time.in_order(self._truncated)

    def _truncated(self) -> None:
        assert self.truncating is not None
        end, self.truncating = self.truncating, None
        self.disk.truncate(end)
        self.disk.flushed_end = end
        if self.flushing is not None:
            self.flushing = min(self.flushing, end)
        self.step(Truncated(end))

    # Snapshots that are fetched

    def _write_chunk(self, effect: fx.WriteChunk) -> None:
        self.disk_time.in_order(self._chunk_written, effect)

    def _chunk_written(self, effect: fx.WriteChunk) -> None:
        disk = self.disk
        if effect.position == 0:
            disk.part = (effect.snapshot_id, bytearray())
        part = disk.part
        if part is None or part[0] != effect.snapshot_id or len(part[1]) != effect.position:
            raise Violation("chunks lie back to back", f"{self}: {effect} after {part}")
        part[1].extend(effect.data)
        self.step(ChunkWritten(effect.snapshot_id, len(part[1])))

    def _drop_chunks(self, effect: fx.DropChunks) -> None:
        self.disk_time.in_order(self._chunks_dropped)

    def _chunks_dropped(self) -> None:
        self.disk.part = None

    def _install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        if self.truncating is not None or self.installing is not None:
            raise Violation("one change of the log at a time", f"{self}")
        self.installing = effect
        self.disk_time.in_order(self._installed, effect)

    def _installed(self, effect: fx.InstallSnapshot) -> None:
        self.installing = None
        if self.world.disk_dice.random() < self.world.damage_chance:
            self.disk.part = None
            self.world.tell(f"{self} finds {effect.snapshot_id} damaged")
            self.world.oracle.error_causes.add("is damaged")
            self.step(SnapshotRefused(effect.snapshot_id))
            return
        self._install(effect)
        stored = self.disk.snapshots[effect.snapshot_id]
        self.step(SnapshotInstalled(stored.file, stored.facts))

    def _install(self, effect: fx.InstallSnapshot) -> None:
        """Check the fetched bytes and let them stand for the log."""
        part = self.disk.part
        stored = self.world.written_snapshots.get(bytes(part[1])) if part is not None else None
        if stored is None or stored.file.id != effect.snapshot_id:
            raise Violation("chunks of two snapshots are never mixed", f"{self}: {effect} {part}")
        self.world.oracle.installs(self, stored)
        self.disk.install(stored)
        self.known_high_watermark = max(self.known_high_watermark, stored.file.id.end_offset)
        if self.flushing is not None:
            self.flushing = min(self.flushing, self.disk.end_offset)

    # The rest

    def _note_leader_log_start(self, effect: fx.NoteLeaderLogStart) -> None:
        self.leader_log_start = max(self.leader_log_start, effect.offset)

    def _advance(self, effect: fx.AdvanceHighWatermark) -> None:
        self.world.oracle.advances(self, effect.offset)
        self.known_high_watermark = effect.offset

    def _role_changed(self, effect: fx.RoleChanged) -> None:
        self.world.oracle.changes_role(self, effect)

    def _wake_at(self, effect: fx.WakeAt) -> None:
        self._wake_ms = effect.deadline_ms
        if effect.deadline_ms is None:
            return
        at = max(self.world.now_us, self._world_us(effect.deadline_ms))
        if self._tick_at is None or at < self._tick_at:
            self._tick_at = at
            self.world.at_node(at, self, self._tick, at)

    def _world_us(self, local_ms: int) -> int:
        """First microsecond of the world at which this node's clock shows `local_ms`."""
        return -(-(local_ms - self.clock_offset_ms) * 1_000_000 // self.clock_rate)

    def _tick(self, at: int) -> None:
        if at != self._tick_at:
            return  # an earlier one was asked for meanwhile
        self._tick_at = None
        if self._wake_ms is None:
            return
        if self.local_ms() < self._wake_ms:
            self._wake_at(fx.WakeAt(self._wake_ms))
            return
        self._wake_ms = None
        self.step(Tick(self.world.core_dice.random()))

    def _refuse(self, effect: fx.Refuse) -> None:
        self.refused = True

    def _report(self, effect: fx.Report) -> None:
        self.world.oracle.reports(self, effect)
        self.world.reports.append(f"{self}: {effect.text}")

    def _fatal(self, effect: fx.Fatal) -> None:
        raise Violation("no node gives up", f"{self}: {effect.reason}")

    def _closed(self, effect: fx.Closed) -> None:
        self.world.tell(f"{self} has closed")
        self.stop()
        if self.restarts_after_close:
            self.world.start_later(self, 500)


HANDLERS: dict[type[fx.Effect], Callable[[SimNode, Any], None]] = {
    fx.Persist: SimNode._persist,
    fx.Send: SimNode._send,
    fx.Respond: SimNode._respond,
    fx.RespondRecords: SimNode._respond_records,
    fx.RespondChunk: SimNode._respond_chunk,
    fx.AppendEpochStart: SimNode._append_epoch_start,
    fx.Append: SimNode._append,
    fx.FlushLog: SimNode._flush,
    fx.TruncateLog: SimNode._truncate,
    fx.WriteChunk: SimNode._write_chunk,
    fx.InstallSnapshot: SimNode._install_snapshot,
    fx.DropChunks: SimNode._drop_chunks,
    fx.NoteLeaderLogStart: SimNode._note_leader_log_start,
    fx.AdvanceHighWatermark: SimNode._advance,
    fx.RoleChanged: SimNode._role_changed,
    fx.WakeAt: SimNode._wake_at,
    fx.Refuse: SimNode._refuse,
    fx.Report: SimNode._report,
    fx.Fatal: SimNode._fatal,
    fx.Closed: SimNode._closed,
}
