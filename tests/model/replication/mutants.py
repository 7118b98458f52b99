"""Every rule excluded, one at a time: the shortest story that breaks a promise, and its bounds.

A mutant without a story is one that no search finds; `why` says why.
"""

from collections.abc import Iterable
from typing import Any

from broker.replica.isr import InSyncReplicas, Proposal
from tests.model.listed import Mutant
from tests.model.replication.rules import Rules


class JoinsBelowEpochStart(InSyncReplicas):
    def to_join(self, replica: int, **facts: Any) -> Proposal | None:
        self.epoch_start_offset = 0
        return super().to_join(replica, **facts)


class JoinsBelowWatermark(InSyncReplicas):
    def to_join(self, replica: int, **facts: Any) -> Proposal | None:
        return super().to_join(replica, **{**facts, "high_watermark": 0})


class JoinsUnchecked(InSyncReplicas):
    def to_join(self, replica: int, **facts: Any) -> Proposal | None:
        return super().to_join(replica, **{**facts, "is_eligible": lambda _one, _epoch: True})


class JoinsBesideProposal(InSyncReplicas):
    def to_join(self, replica: int, **facts: Any) -> Proposal | None:
        before, self.proposal = self.proposal, None
        asked = super().to_join(replica, **facts)
        if asked is None:
            self.proposal = before
        return asked


class JoinsWhileRecovering(InSyncReplicas):
    def _propose(self, members: Iterable[int]) -> Proposal:
        asked = super()._propose(members)
        self.proposal = asked._replace(is_recovered=not self.is_recovering)
        return self.proposal


class ProposalUncounted(InSyncReplicas):
    @property
    def maximal_isr(self) -> frozenset[int]:
        return frozenset(self.isr).union(*self._doubtful)


class ShrinkCountsAtOnce(InSyncReplicas):
    @property
    def maximal_isr(self) -> frozenset[int]:
        isr = self.isr if self.proposal is None else self.proposal.members
        return frozenset(isr).union(*self._doubtful)


class DoubtForgotten(InSyncReplicas):
    def still_undecided(self) -> None:
        pass


class MovesUnderMinIsr(InSyncReplicas):
    @property
    def may_be_under_min_isr(self) -> bool:
        return False


class MovesWhileAskingForFewer(InSyncReplicas):
    @property
    def may_be_under_min_isr(self) -> bool:
        return self.is_under_min_isr


class ProposalCountsForMinIsr(InSyncReplicas):
    @property
    def is_under_min_isr(self) -> bool:
        return len(self.maximal_isr) < self.min_isr


class WatermarkGoesBack(InSyncReplicas):
    def high_watermark(self, now: int, **facts: Any) -> int:
        return super().high_watermark(0, **facts)


class LivesMixed(InSyncReplicas):
    """What a life before had counts for the next one."""

    def fetch(self, replica: int, *, broker_epoch: int, offset: int, **facts: Any) -> bool:
        self.followers[replica].broker_epoch = broker_epoch
        offset = max(offset, self.followers[replica].log_end_offset)
        return super().fetch(replica, broker_epoch=broker_epoch, offset=offset, **facts)


class LowerOffsetIgnored(InSyncReplicas):
    """A Fetch at a lower offset of the same life changes nothing."""

    def fetch(self, replica: int, *, broker_epoch: int, offset: int, **facts: Any) -> bool:
        known = self.followers[replica]
        if known.broker_epoch == broker_epoch:
            offset = max(offset, known.log_end_offset)
        return super().fetch(replica, broker_epoch=broker_epoch, offset=offset, **facts)


class NeverFlushes(InSyncReplicas):
    def must_flush(self, members: int) -> bool:
        return False


class ProposesWithoutEpochs(InSyncReplicas):
    def _propose(self, members: Iterable[int]) -> Proposal:
        asked = super()._propose(members)
        self.proposal = asked._replace(isr=tuple((one, -1) for one in asked.members))
        return self.proposal


class OlderStateTaken(InSyncReplicas):
    def learn(self, **facts: Any) -> bool:
        self.partition_epoch = -1
        return super().learn(**facts)


MUTANTS: list[Mutant] = [
    Mutant(
        "a follower joins below the first offset of the leader epoch",
        {"isr": JoinsBelowEpochStart},
        Rules(epochs=3, cuts=1, lost_answers=2),
        "append 0; fetch 1 0; fetch unanswered 1 0; power cut 0 1; start 0 0; "
        "unfence 0 0; learn 1; fetch unanswered 0 1; ask to join 1 0; decide 1 (0, 1)",
    ),
    Mutant(
        "a follower joins below the high watermark",
        {"isr": JoinsBelowWatermark},
        Rules(epochs=4, min_isr=1),
        "append 0; ask to leave 0 (0,); decide 0 (0,); ask to join 0 1; decide 0 (0, 1)",
    ),
    Mutant(
        "a follower joins whatever the image says of its broker",
        {"isr": JoinsUnchecked},
        Rules(replicas=3, records=1, epochs=2, cuts=1, fences=1),
        why="the controller refuses it: it saves requests",
    ),
    Mutant(
        "a follower joins whatever image and controller have of its broker",
        {"isr": JoinsUnchecked, "alter_refuses_fenced": False, "alter_checks_broker_epochs": False},
        Rules(replicas=3, records=1, epochs=2, cuts=1, fences=1),
        "fence 1 0; learn 0; ask to join 0 1; decide 0 (0, 1, 2)",
    ),
    Mutant(
        "a follower joins beside an open proposal",
        {"isr": JoinsBesideProposal},
        Rules(replicas=3, epochs=3, min_isr=1, lost_answers=1),
        "append 0; fetch 1 0; ask to leave 0 (0, 1); decide 0 (0, 1); ask to join 0 2; "
        "fetch 1 0; ask to join 0 2; decide unheard 0 (0, 1, 2); decide 0 (0, 1, 2)",
    ),
    Mutant(
        "a follower joins a recovering leader without RECOVERED, the controller takes it",
        {"isr": JoinsWhileRecovering, "alter_asks_recovered": False},
        Rules(epochs=4, unclean=True, kills=1, fences=1, min_isr=1),
        "kill 0; start 0 0; unfence 0 0; fence 1 0; elect 0; learn 1; unfence 1 0; "
        "learn 0; fetch 1 0; ask to join 0 1; decide 0 (0, 1)",
    ),
    Mutant(
        "a proposed member does not count for the watermark",
        {"isr": ProposalUncounted},
        Rules(epochs=3, min_isr=1, fences=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; append 0; decide 0 (0, 1)",
    ),
    Mutant(
        "a proposed leave counts before its answer",
        {"isr": ShrinkCountsAtOnce},
        Rules(epochs=3, min_isr=1),
        "append 0; ask to leave 0 (0,)",
    ),
    Mutant(
        "a proposal of unknown outcome is forgotten with the next refusal",
        {"isr": DoubtForgotten},
        Rules(epochs=3, lost_answers=2, min_isr=1, fences=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; append 0; ask again 0; "
        "decide unheard 0 (0, 1); decide 0 (0, 1)",
    ),
    Mutant(
        "the watermark moves below min.insync.replicas",
        {"isr": MovesUnderMinIsr},
        Rules(epochs=3),
        "append 0; ask to leave 0 (0,); decide 0 (0,)",
    ),
    Mutant(
        "a proposed member lifts the ISR to min.insync.replicas",
        {"isr": ProposalCountsForMinIsr},
        Rules(replicas=3, epochs=3, fences=1),
        "append 0; fetch 1 0; ask to leave 0 (0,); fetch 1 0; decide 0 (0,); ask to join 0 1",
    ),
    Mutant(
        "the watermark is counted again each time",
        {"isr": WatermarkGoesBack},
        Rules(epochs=3),
        "append 0; ask to leave 0 (0,); decide 0 (0,)",
    ),
    Mutant(
        "what a life before had counts for the next",
        {"isr": LivesMixed},
        Rules(epochs=4, cuts=1, lost_answers=1),
        "power cut 1 0; start 1 0; unfence 1 0; learn 0; fetch unanswered 1 0; "
        "ask to join 0 1; decide 0 (0, 1)",
    ),
    Mutant(
        "a Fetch at a lower offset changes nothing",
        {"isr": LowerOffsetIgnored},
        Rules(records=3, epochs=4, moves=2, kills=1),
        why="within a life and leader epoch only late Fetches go down: no diverging one is noted",
    ),
    Mutant(
        "the leader never flushes",
        {"isr": NeverFlushes},
        Rules(epochs=4, cuts=1, lost_answers=1, elr=False),
        "append 0; ask to leave 0 (0,); power cut 0 0; decide 0 (0,); start 0 0",
    ),
    Mutant(
        "the leader does not flush when it asks",
        {"flushes_when_asking": False},
        Rules(epochs=4, cuts=1, lost_answers=1, elr=False),
        "append 0; ask to leave 0 (0,); power cut 0 0; decide 0 (0,); start 0 0",
    ),
    Mutant(
        "the leader does not flush when it sees",
        {"flushes_when_seeing": False},
        Rules(records=1, epochs=4, cuts=1, fences=1, elr=False),
        "fence 1 0; learn 0; power cut 0 0; start 0 0",
    ),
    Mutant(
        "members are proposed without broker epochs",
        {"isr": ProposesWithoutEpochs},
        Rules(replicas=3, records=1, epochs=2, cuts=1, fences=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; power cut 1 0; start 1 0; "
        "unfence 1 0; decide 0 (0, 1, 2)",
    ),
    Mutant(
        "an older state replaces a newer one",
        {"isr": OlderStateTaken},
        Rules(epochs=4, min_isr=1, lost_answers=1, fences=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; append 0; learn 0; decide 0 (0, 1)",
    ),
    Mutant(
        "a Fetch of a life that the image lacks is noted",
        {"fetch_checks_life": False},
        Rules(epochs=4, kills=1, cuts=1, lost_answers=1),
        why="joining checks it again, and the controller too",
    ),
    Mutant(
        "a Fetch of another leader epoch is noted",
        {"fetch_checks_epoch": False},
        Rules(replicas=3, epochs=3, moves=2),
        "append 0; fetch 1 0; fetch 1 0; elect 2; learn 1; learn 2; fetch 1 2; elect 0; "
        "learn 2; fetch 2 0; fetch 2 0",
    ),
    Mutant(
        "a diverging Fetch is noted",
        {"diverging_fetch_not_noted": False},
        Rules(epochs=4, moves=1, min_isr=1),
        "append 0; elect 1; learn 0; learn 1; append 1; fetch 0 1",
    ),
    Mutant(
        "a truncation without records leaves the chain",
        {"chain_cut_at_end": False},
        Rules(records=3, epochs=5, moves=2, begins_with=0),
        "append 0; fetch 1 0; append 0; elect 1; learn 1; elect 0; learn 0; learn 1; fetch 1 0",
    ),
    Mutant(
        "a follower truncates to its own watermark",
        {"truncates_by": "watermark"},
        Rules(epochs=4, kills=1),
        "kill 0; start 0 0",
    ),
    Mutant(
        "a stop does not flush",
        {"stop_flushes": False},
        Rules(records=1, epochs=4, stops=1, cuts=1),
        "stop 0 0; stopped 0; power cut 0 0; start 0 0",
    ),
    Mutant(
        "the clean-shutdown file outlives the start",
        {"clean_file_ends": False},
        Rules(epochs=4, stops=1, cuts=1),
        why="its broker epoch is not the registered one any more",
    ),
    Mutant(
        "any clean-shutdown file is believed",
        {"clean_epoch_checked": False},
        Rules(epochs=4, stops=1, cuts=1),
        why="the file went at the start",
    ),
    Mutant(
        "any clean-shutdown file is believed, and outlives the start",
        {"clean_epoch_checked": False, "clean_file_ends": False},
        Rules(epochs=4, stops=1, cuts=1),
        "append 0; stop 1 0; stopped 1; start 1 0; unfence 1 0; learn 0; fetch 1 0; "
        "fetch 1 0; ask to join 0 1; power cut 1 1; decide 0 (0, 1); start 1 0",
    ),
    Mutant(
        "a killed process on a machine that runs on counts as unclean",
        {"same_boot_is_clean": False},
        Rules(epochs=5, cuts=1, kills=1),
        "kill 0; start 0 0; power cut 1 0; start 1 0; unfence 1 0",
    ),
    Mutant(
        "a new life keeps what the life before led",
        {"register_fences": False},
        Rules(epochs=5, cuts=1, elr=False),
        "power cut 0 0; start 0 0",
    ),
    Mutant(
        "a new life keeps what the life before led, with ELR",
        {"register_fences": False},
        Rules(epochs=5, cuts=1, kills=1),
        why="an unclean life leaves the ISR by the rule of ELR",
    ),
    Mutant(
        "an unclean member stays in ISR and ELR",
        {"unclean_leaves": False},
        Rules(epochs=5, cuts=1, kills=1),
        "power cut 0 0; start 0 0",
    ),
    Mutant(
        "a lost directory stays in the ISR",
        {"lost_leaves_isr": False},
        Rules(epochs=5, disks=1, kills=1),
        "kill 0; new disk 0; start 0 0",
    ),
    Mutant(
        "a lost directory stays in the ISR, without ELR",
        {"lost_leaves_isr": False},
        Rules(epochs=5, disks=1, kills=2, elr=False),
        "kill 0; start 0 0; kill 1; new disk 1; start 1 0",
    ),
    Mutant(
        "a lost directory stays in the ELR",
        {"lost_leaves_elr": False},
        Rules(epochs=5, disks=1, kills=1),
        "kill 0; new disk 0; start 0 0",
    ),
    Mutant(
        "a lost directory stays the last known leader",
        {"lost_leaves_last_known": False},
        Rules(records=1, epochs=5, disks=1, kills=1, cuts=1, starts_flushed=True),
        "kill 0; new disk 0; power cut 1 1; start 1 0; start 0 0; unfence 0 0",
    ),
    Mutant(
        "the last member leaves the ISR, without ELR",
        {"last_member_stays": False},
        Rules(kills=2, epochs=4, elr=False),
        "append 0; ask to leave 0 (0,); kill 0; decide 0 (0,); start 0 0; unfence 0 0; learn 1",
    ),
    Mutant(
        "the ELR outlives the full ISR",
        {"elr_ends": False},
        Rules(replicas=3, epochs=4, kills=1),
        "append 0; fetch 1 0; fetch 1 0; ask to leave 0 (0, 1); decide 0 (0, 1)",
    ),
    Mutant(
        "a broker leads that is not active",
        {"dead_may_lead": True},
        Rules(epochs=3, kills=1, cuts=1),
        "kill 0; start 0 0; power cut 1 0; start 1 0",
    ),
    Mutant(
        "an unclean leader does not recover",
        {"unclean_recovers": False},
        Rules(epochs=4, unclean=True, kills=1, fences=1, min_isr=1),
        why="the state only tells: nothing is settled by it in this protocol",
    ),
    Mutant(
        "AlterPartition of another leader epoch",
        {"alter_checks_leader_epoch": False},
        Rules(epochs=4, lost_answers=1, moves=2),
        why="its partition epoch is old as well",
    ),
    Mutant(
        "AlterPartition of another partition epoch",
        {"alter_checks_partition_epoch": False},
        Rules(epochs=4, lost_answers=1, fences=1, min_isr=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; append 0; ask again 0; "
        "decide 0 (0, 1); ask to leave 0 (0,); decide 0 (0,); decide 0 (0, 1)",
    ),
    Mutant(
        "AlterPartition with a fenced member",
        {"alter_refuses_fenced": False},
        Rules(records=1, epochs=2, fences=2, min_isr=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; fence 1 0; decide 0 (0, 1)",
    ),
    Mutant(
        "AlterPartition with a stopping member",
        {"alter_refuses_stopping": False},
        Rules(records=1, epochs=2, stops=1, fences=1, min_isr=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; stop 1 0; decide 0 (0, 1)",
    ),
    Mutant(
        "AlterPartition with a member of another life",
        {"alter_checks_broker_epochs": False},
        Rules(replicas=3, records=1, epochs=2, cuts=1, fences=1),
        "fence 1 0; unfence 1 0; learn 0; ask to join 0 1; power cut 1 0; start 1 0; "
        "unfence 1 0; decide 0 (0, 1, 2)",
    ),
    Mutant(
        "a recovering leader's ISR without RECOVERED is taken",
        {"alter_asks_recovered": False},
        Rules(epochs=4, unclean=True, kills=1, fences=1, min_isr=1),
        why="every proposal says it",
    ),
    Mutant(
        "a follower joins without the leader's log start",
        {"joins_by_log_start": False},
        Rules(records=1, epochs=3, deletes=1, fences=1, min_isr=1),
        "delete records 0 1; fence 1 0; unfence 1 0; learn 0; answer 0; ask to join 0 1; "
        "decide 0 (0, 1)",
    ),
    Mutant(
        "DeleteRecords is answered below min.insync.replicas",
        {"deletes_at_min_isr": False},
        Rules(records=1, epochs=3, deletes=1, fences=1),
        "delete records 0 1; fence 1 0; learn 0; answer 0",
    ),
    Mutant(
        "the leader has a lower min.insync.replicas than the controller",
        {"leader_min_isr": 1},
        Rules(epochs=3),
        "append 0; ask to leave 0 (0,); decide 0 (0,)",
    ),
    Mutant(
        "the end is told below the first offset of the leader epoch",
        {"answers_from_start": False},
        Rules(epochs=3, moves=1),
        "append 0; fetch 1 0; ask to leave 0 (0,); decide 0 (0,); fetch 1 0; ask to join 0 1; "
        "decide 0 (0, 1); elect 1; learn 1",
    ),
    Mutant(
        "the watermark moves while an ISR below min.insync.replicas is asked for",
        {"isr": MovesWhileAskingForFewer},
        Rules(records=3, epochs=3, cuts=1, elr=False),
        "append 0; ask to leave 0 (0,); append 0; fetch 1 0; fetch 1 0; power cut 0 2; "
        "decide 0 (0,); start 0 0",
    ),
]
