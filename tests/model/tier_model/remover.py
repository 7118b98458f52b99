"""The model of topic deletion: cluster metadata log, remote metadata topic, two removers.

One topic id is created and may be deleted. Broker A leads its partition and copies; its image lags.
Brokers P and Q may lead the metadata partition. `restores`: all stop, the cluster metadata log is
replaced by an earlier copy of itself and goes on with other records; the remote metadata stay.
"""

from collections.abc import Sequence
from typing import Any

from tier_model.explore import Label, Step
from tier_model.remover_state import (
    BARRIER,
    CREATED,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    HIGHEST_PAIR,
    MARKED,
    NAMES,
    OTHER,
    PARTITION,
    REMOVED,
    STARTED,
    Budget,
    Copier,
    Fold,
    Reader,
    Record,
    Remover,
    RemoverSetup,
    State,
    exists,
    replaced,
)


class TopicDeletion:
    """The first state, the steps, the invariants."""

    def __init__(self, setup: RemoverSetup) -> None:
        self.setup = setup
        self.fold = Reader(setup).fold

    def first(self) -> State:
        setup = self.setup
        budget = Budget(setup.moves, setup.kills, setup.restores, setup.others, setup.snapshots)
        return State(
            log="",
            copier=Copier(),
            removers=(Remover(), Remover()),
            base=Fold(),
            tail=(),
            queues=((), (), ()),
            ghosts=(),
            objects=0,
            puts=0,
            aged=0,
            ids=0,
            active=0,
            budget=budget,
        )

    def steps(self, state: State) -> list[Step]:
        if state.alarm:
            return []
        turn = DeletionTurn(self, state)
        turn.cluster_log()
        turn.copier()
        for number in (0, 1):
            turn.remover(number)
        turn.flights()
        turn.store()
        return turn.found

    def broken(self, state: State, steps: Sequence[Step]) -> str | None:
        if state.alarm:
            return state.alarm
        truth = self.fold(state.base, state.tail)
        for one in range(state.ids):
            if state.objects >> one & 1 and one not in truth.known():
                return f"leak: objects of s{one} of the deleted topic, no reader knows the id"
            if one in truth.finished and not state.objects >> one & 1:
                return f"s{one} is FINISHED, its objects are gone"
        if any(step.fair for step in steps):
            return None
        return self.unsettled(state, truth)

    def unsettled(self, state: State, truth: Fold) -> str | None:
        left = bool(truth.known() or state.objects)
        shown = f"{truth}, store {state.objects:b}"
        if state.budget.restores < self.setup.restores:
            if exists(state.log) and truth.partition:
                return f"at rest, the topic exists and its partition is closed for ever: {shown}"
            if not exists(state.log) and left:
                return f"at rest, the id is not in the metadata, no way out: {shown}"
            return None
        if REMOVED not in state.log:
            return None
        if left and (self.setup.snapshots or state.removers[state.active].begun):
            return f"at rest, the removed topic still has {shown}"
        if state.removers[state.active].begun and truth.partition != 3:
            return f"at rest, the removed topic's partition is not FINISHED: {shown}"
        return None

    def show(self, state: State) -> str:
        truth = self.fold(state.base, state.tail)
        removers = " ".join(
            f"{name}{'*' if number == state.active else ''} image {one.image}"
            for number, (name, one) in enumerate(zip(NAMES, state.removers, strict=True))
        )
        flying = [tuple(map(tuple, queue)) for queue in state.queues + state.ghosts if queue]
        return (
            f"cluster log {state.log!r} A image {state.copier.image} copies "
            f"{state.copier.copying} {removers}\n{'':9}topic S{truth.started} F{truth.finished} "
            f"D{truth.deleting} partition {truth.partition} in flight {flying or 'nothing'} "
            f"store {state.objects:b} puts {state.puts:b}"
        )


class DeletionTurn:
    """Collects what can happen next in one state."""

    def __init__(self, model: TopicDeletion, state: State) -> None:
        self.setup = model.setup
        self.fold = model.fold
        self.state = state
        self.truth = model.fold(state.base, state.tail)
        self.found: list[Step] = []

    def go(self, label: Label, *, fair: bool = True, **changes: Any) -> None:
        self.found.append(Step(label, self.settled(self.state._replace(**changes)), fair))

    def settled(self, state: State) -> State:
        """Readers that are too far behind catch up; what all have read is folded."""
        end = len(state.tail)
        least = end - self.setup.lag
        removers, copier = state.removers, state.copier
        position = max(copier.position, least)
        positions = [
            max(one.position, least) if n == state.active or one.begun else end
            for n, one in enumerate(removers)
        ]
        count = min(position, *positions)
        if position - count != copier.position:
            state = state._replace(copier=copier._replace(position=position - count))
        if any(at - count != one.position for at, one in zip(positions, removers, strict=True)):
            p, q = (
                one._replace(position=at - count)
                for at, one in zip(positions, removers, strict=True)
            )
            state = state._replace(removers=(p, q))
        if not count:
            return state
        base = self.fold(state.base, state.tail[:count])
        return state._replace(base=base, tail=state.tail[count:])

    def sends(self, queue: int, kind: str, one: int = -1) -> tuple[tuple[Record, ...], ...]:
        """Queue 0 is A's, 1 and 2 are the removers'."""
        state, image = self.state, 0
        if queue == 0:
            pair = (1, state.copier.incarnation)
            image = state.copier.image if self.setup.tags else 0
        else:
            pair = HIGHEST_PAIR if self.setup.remover_outranks else (1, 1)
        record = Record(kind, one, pair, image)
        return replaced(state.queues, queue, (*state.queues[queue], record))

    # ---- the cluster metadata log
    def cluster_log(self) -> None:
        state, budget = self.state, self.state.budget
        if not state.log:
            self.go(("topic-created",), fair=False, log=CREATED)
        elif exists(state.log):
            again = bool(self.setup.restores and self.setup.delete_again and self.truth.partition)
            label = "op-delete-again" if again else "topic-deleted"
            self.go((label,), fair=again, log=state.log + REMOVED, ordered=True)
        if budget.others and state.log:
            spent = budget._replace(others=budget.others - 1)
            self.go(("other-record",), fair=False, log=state.log + OTHER, budget=spent)
        if budget.snapshots and len(state.log) > state.snapshot_end:
            spent = budget._replace(snapshots=budget.snapshots - 1)
            end = len(state.log)
            self.go(("snapshot",), fair=False, budget=spent, snapshot_end=end)
        if budget.restores:
            for keep in range(len(state.log)):
                self.restore(keep)

    def restore(self, keep: int) -> None:
        state = self.state
        budget = state.budget._replace(restores=state.budget.restores - 1)
        flying = (one for one in state.queues if one)
        self.go(
            ("METADATA-RESTORED", state.log[:keep]),
            fair=False,
            log=state.log[:keep] + OTHER,
            copier=state.copier._replace(
                image=0, incarnation=state.copier.incarnation + 1, copying=None
            ),
            queues=((), (), ()),
            ghosts=tuple(sorted((*state.ghosts, *flying))),
            removers=tuple(Remover(position=one.position) for one in state.removers),
            budget=budget,
            snapshot_end=0,
        )

    # ---- A, leader of the user partition
    def copier(self) -> None:
        state, copier = self.state, self.state.copier
        if copier.image < len(state.log):
            image = max(copier.image + 1, state.snapshot_end)
            self.go(("image", "A"), copier=copier._replace(image=image))
        if copier.position < len(state.tail):
            self.go(("read", "A"), copier=copier._replace(position=len(state.tail)))
        hosts = exists(state.log[: copier.image])
        if hosts and copier.copying is None and state.ids < self.setup.ids:
            self.go(
                ("copy-STARTED", "A", state.ids),
                fair=False,
                ids=state.ids + 1,
                copier=copier._replace(copying=(1, state.ids)),
                queues=self.sends(0, STARTED, state.ids),
            )
        if copier.copying is not None:
            self.copying(*copier.copying, hosts=hosts)
        if state.budget.kills:
            self.kills()

    def copying(self, stage: int, one: int, *, hosts: bool) -> None:
        state, copier, bit = self.state, self.state.copier, 1 << one
        fold = self.fold(state.base, state.tail[: copier.position])
        idle = not state.queues[0] and copier.position >= len(state.tail)
        over = copier._replace(copying=None)
        if not hosts and stage < 2:
            self.go(("unassign", "A"), copier=over)
        if stage == 1 and one in fold.started and not state.aged & bit and hosts:
            sent = copier._replace(copying=(2, one))
            self.go(("put", one), puts=state.puts | bit, copier=sent)
        elif stage == 2 and state.objects & bit:
            done = copier._replace(copying=(3, one))
            self.go(("copy-FINISHED", "A", one), copier=done, queues=self.sends(0, FINISHED, one))
        elif (stage in (1, 3) and idle) or (stage == 2 and not state.puts & bit):
            self.go(("copy-over" if stage == 3 else "give-up", "A"), copier=over)

    def kills(self) -> None:
        state, incarnation = self.state, self.state.copier.incarnation + 1
        queue = state.queues[0]
        changes: dict[str, Any] = {
            "copier": state.copier._replace(incarnation=incarnation, copying=None),
            "ghosts": tuple(sorted((*state.ghosts, queue))) if queue else state.ghosts,
            "budget": state.budget._replace(kills=state.budget.kills - 1),
        }
        barrier = Record(BARRIER, -1, (1, incarnation))
        for label, sent in (("kill-tier", ()), ("kill-tier+barrier", (barrier,))):
            self.go((label, "A"), fair=False, queues=replaced(state.queues, 0, sent), **changes)

    # ---- the remover and its deposed predecessor
    def remover(self, number: int) -> None:
        state, mine, name = self.state, self.state.removers[number], NAMES[number]
        fold = self.fold(state.base, state.tail[: mine.position])
        if mine.image < len(state.log):
            self.image(number)
        if mine.position < len(state.tail):
            read = mine._replace(position=len(state.tail))
            self.go(("read", name), removers=replaced(state.removers, number, read))
        if number != state.active and not mine.begun:
            return  # a deposed remover only ends what it has begun
        removed = mine.read_removal or self.setup.judge == "absent"
        gone = removed and not exists(state.log[: mine.image])
        if not mine.begun:
            self.judges(number, fold, gone=gone)
        self.forgets(number, fold, removed=removed)
        if mine.begun:
            self.removes(number, fold, gone=gone)
        queue = state.queues[1 + number]
        if queue:
            queues = replaced(state.queues, 1 + number, queue[1:])
            self.go(("land", name), tail=(*state.tail, queue[0]), queues=queues)

    def image(self, number: int) -> None:
        """The image follows the log; below a snapshot's end it knows what the snapshot lists."""
        state, mine = self.state, self.state.removers[number]
        to = max(mine.image + 1, state.snapshot_end)
        told = REMOVED in state.log[mine.image : to] and (
            self.setup.lists or to > state.snapshot_end or mine.image >= state.snapshot_end
        )
        after = mine._replace(image=to)
        if self.setup.judge == "removed" and told:
            after = after._replace(read_removal=True)
        self.go(("image", NAMES[number]), removers=replaced(state.removers, number, after))

    def judges(self, number: int, fold: Fold, *, gone: bool) -> None:
        state, setup, mine, name = (
            self.state,
            self.setup,
            self.state.removers[number],
            NAMES[number],
        )
        asks = setup.ask_high_watermark
        if number == state.active and asks and mine.high_watermark < 0:
            self.asks_high_watermark(number, fold)
        may = (not asks or 0 <= mine.high_watermark <= mine.image) and (
            not setup.tags or mine.image >= fold.image
        )
        if may and fold.known() and gone:
            self.begins(number, fold)
        elif may and not gone and mine.high_watermark >= 0:
            after = mine._replace(high_watermark=-1)
            label = ("judges-alive", name)
            self.go(label, fair=False, removers=replaced(state.removers, number, after))
        if setup.resumes and number == state.active and fold.partition in (1, 2):
            begun = replaced(state.removers, number, mine._replace(begun=True))
            self.go(("goes-on", name), removers=begun)

    def begins(self, number: int, fold: Fold) -> None:
        state, mine, name = self.state, self.state.removers[number], NAMES[number]
        begun = replaced(state.removers, number, mine._replace(begun=True))
        if not state.ordered:
            alarm = "the remover takes a living topic for deleted"
            self.go(("judges-deleted", name), alarm=alarm)
        elif fold.partition == 0:
            self.go(("MARKED", name), removers=begun, queues=self.sends(1 + number, MARKED))
        else:
            self.go(("goes-on", name), removers=begun)

    def asks_high_watermark(self, number: int, fold: Fold) -> None:
        state, setup, mine = self.state, self.setup, self.state.removers[number]
        if setup.read_record_first and not fold.known():
            return
        end = len(state.log)
        for answer in (end,) if setup.quorum_checked else range(end + 1):
            after = mine._replace(high_watermark=answer)
            self.go(
                ("asks-high-watermark", NAMES[number], answer),
                fair=setup.judge == "removed" and mine.read_removal,
                removers=replaced(state.removers, number, after),
            )

    def forgets(self, number: int, fold: Fold, *, removed: bool) -> None:
        """An id with segments that neither exists nor was removed: the operator's command."""
        state, mine = self.state, self.state.removers[number]
        unknown = mine.image == len(state.log) and CREATED not in state.log and not removed
        wanted = unknown and fold.known() and self.setup.forget and number == state.active
        if wanted and self.setup.judge == "removed":
            after = replaced(state.removers, number, mine._replace(read_removal=True))
            self.go(("op-forget-id", NAMES[number]), removers=after, ordered=True)

    def removes(self, number: int, fold: Fold, *, gone: bool) -> None:
        state, setup, mine, name = (
            self.state,
            self.setup,
            self.state.removers[number],
            NAMES[number],
        )
        judges_again = setup.judge == "removed" and setup.start_checks
        if judges_again and fold.partition in (1, 2) and not gone:
            return  # marked, but not removed as far as the image says: red
        if state.queues[1 + number] or mine.position < len(state.tail) or fold.partition == 3:
            return
        if fold.partition < 2:
            kind = PARTITION[fold.partition]
            self.go((f"PARTITION-{kind}", name), queues=self.sends(1 + number, kind))
            return
        if not fold.known():
            self.go(("PARTITION-FINISHED", name), queues=self.sends(1 + number, PARTITION[2]))
        for one in fold.started + fold.finished:
            queues = self.sends(1 + number, DELETE_STARTED, one)
            self.go(("delete-STARTED", name, one), queues=queues)
        for one in fold.deleting:
            if not state.aged >> one & 1 and setup.aged_first:
                continue
            if exists(state.log) and state.budget.restores < setup.restores:
                alarm = "objects of a topic that exists again are deleted"
                self.go(("delete-objects", name, one), alarm=alarm)
                continue
            self.go(
                ("delete-objects+FINISHED", name, one),
                objects=state.objects & ~(1 << one),
                queues=self.sends(1 + number, DELETE_FINISHED, one),
            )

    # ---- records in flight, the store
    def flights(self) -> None:
        state = self.state
        if state.queues[0]:
            queues = replaced(state.queues, 0, state.queues[0][1:])
            self.go(("land", "A"), tail=(*state.tail, state.queues[0][0]), queues=queues)
        for number, queue in enumerate(state.ghosts):
            rest = state.ghosts[:number] + state.ghosts[number + 1 :]
            left = tuple(sorted((*rest, queue[1:]))) if queue[1:] else rest
            label = ("late-land", queue[0].kind, queue[0].id)
            self.go(label, tail=(*state.tail, queue[0]), ghosts=left)
        if state.budget.moves:
            budget = state.budget._replace(moves=state.budget.moves - 1)
            self.go(("remover-moves",), fair=False, active=1 - state.active, budget=budget)

    def store(self) -> None:
        state, copying = self.state, self.state.copier.copying
        for one in range(state.ids):
            bit = 1 << one
            if state.puts & bit:
                self.go(("put-lands", one), puts=state.puts & ~bit, objects=state.objects | bit)
            live = copying is not None and copying[1] == one and copying[0] < 3
            waiting = one in self.truth.started or one in self.truth.deleting
            if not state.aged & bit and waiting and not live:
                puts = state.puts & ~bit
                self.go(("copy-max-passes", one), aged=state.aged | bit, puts=puts)
