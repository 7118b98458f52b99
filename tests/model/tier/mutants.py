"""Every rule excluded, one at a time: the shortest story that breaks a promise, and its bounds.

A mutant without a story is one that no search finds; `why` says why.
"""

from dataclasses import replace

from tests.model.listed import Mutant
from tests.model.tier.rules import Rules
from tests.model.tier.runs import AWAY, BEHIND, BORDERS, CLIPPED, COPIED, ONE, PART

DELETES_WHAT_IT_WAS = {"deletes_what_was_validated": False}
"""With that rule four others cost nothing within the bounds: each of their stories is a FINISHED
that lands, then DELETE_STARTED of a dangling segment. So it is excluded beside each."""

MUTANTS: list[Mutant] = [
    Mutant(
        "no fence: records of an older owner count",
        {"fence": False, **DELETES_WHAT_IT_WAS},
        replace(ONE, moves=1),
        "move B; copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; barrier B S 0; land "
        "S 0 2.1; settle B; delete B 0; land F 0 1.1; report A 0; land D 0 2.1; "
        "expire A",
    ),
    Mutant(
        "an owner validates before its barrier is read back",
        {"barrier": False, **DELETES_WHAT_IT_WAS},
        replace(ONE, moves=1),
        "move B; copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; barrier B S 0; "
        "settle B; delete B 0; land F 0 1.1; report A 0; land D 0 2.1; expire A",
    ),
    Mutant(
        "no barrier where no segment lives",
        {"barrier_if_empty": False, **DELETES_WHAT_IT_WAS},
        replace(ONE, moves=1),
        "move B; copy A 0-0 0; barrier B N 255; land S 0 1.1; put A 0; finish A 0; "
        "settle B; delete B 0; land F 0 1.1; report A 0; land D 0 2.1; expire A",
    ),
    Mutant(
        "a barrier names a segment again that is forgotten by then",
        {"barrier_adds_none": False},
        replace(BEHIND, moves=1, epochs=3),
        "elect uncleanly B; copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 "
        "1.1; copy A 1-1 1; learn A; land S 1 1.1; fetch A; fetch A; barrier B S 1; "
        "land S 1 2.1; settle B; join A; move A; barrier A S 1; delete B 1; land D 1 "
        "2.1; forget B 1; land X 1 2.1; land S 1 3.1; settle A",
    ),
    Mutant(
        "the pair of an owner is used again",
        {"new_incarnation": False, **DELETES_WHAT_IT_WAS},
        replace(ONE, tiers=1, lag=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; tier ends A; barrier A N "
        "255; land N 255 1.1; settle A; delete A 0; land F 0 1.1; report A 0; land D "
        "0 1.1; expire A",
    ),
    Mutant(
        "a copy that is FINISHED by then is deleted as a dangling one",
        DELETES_WHAT_IT_WAS,
        replace(ONE, losses=1, moves=1, segments=2),
        "move B; copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; learn A; barrier B S "
        "0; land S 0 2.1; settle B; delete B 0; topic loses 1; land F 0 1.1; report A "
        "0; land D 0 2.1; expire A",
    ),
    Mutant(
        "objects before STARTED is read back",
        {"started_first": False},
        replace(ONE, moves=1),
        "move B; copy A 0-0 0; put A 0; barrier B N 255; land N 255 2.1; land S 0 1.1",
    ),
    Mutant(
        "FINISHED before the objects are there",
        {"finished_last": False},
        replace(ONE, moves=1),
        "copy A 0-0 0; land S 0 1.1; finish A 0; land F 0 1.1",
    ),
    Mutant(
        "objects go before DELETE_STARTED is read back",
        {"deletes_in_topic_first": False},
        replace(ONE, raises=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 1.1; raise A 1; "
        "fetch B; fetch B; delete A 0; delete objects A 0",
    ),
    Mutant(
        "DELETE_FINISHED does not wait for the copy maximum",
        {"deletes_wait_for_puts": False},
        replace(ONE, moves=1),
        "move B; copy A 0-0 0; land S 0 1.1; barrier B S 0; land S 0 2.1; settle B; "
        "delete B 0; land D 0 2.1; forget B 0; land X 0 2.1; put A 0",
    ),
    Mutant(
        "records carry no log start",
        {"carries_start": False},
        replace(BEHIND, logs=((1, 1), (1, 1)), raises=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 1.1; raise A 1; "
        "delete A 0; report B 0; land D 0 1.1; expire B; elect uncleanly B; barrier B "
        "D 0; land D 0 2.1; settle B",
    ),
    Mutant(
        "records carry no unclean election",
        {"carries_unclean": False},
        BEHIND,
        "elect uncleanly B; copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 "
        "1.1; copy A 1-1 1; land S 1 1.1; barrier B S 1; land S 1 2.1; settle B",
    ),
    Mutant(
        "segments off the chain are deleted at once",
        {"keeps_off_chain": False},
        replace(COPIED, local_starts=(2, 0), unclean=2, epochs=3, copies=False),
        "elect uncleanly B; barrier B F 1; elect uncleanly A; land F 1 2.1; barrier A "
        "F 1; settle B; delete B 1; land D 1 2.1; land F 1 3.1; settle A",
    ),
    Mutant(
        "deletion does not wait for the log starts of the ISR",
        {"deletes_wait_for_isr": False},
        replace(ONE, raises=1, moves=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 1.1; raise A 1; "
        "delete A 0; report B 0; land D 0 1.1; expire B",
    ),
    Mutant(
        "the metadata topic tells what is in page caches only",
        {"flush_before_fetch": False},
        replace(ONE, power_cuts=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 1.1; report A 0; "
        "expire A; power cut",
    ),
    Mutant(
        "CopiedThrough looks at offsets, not at epochs",
        {"by_epoch": False},
        COPIED,
        "elect uncleanly B; append B; barrier B F 1; land F 1 2.1; settle B; report B "
        "1; expire B; expire B",
    ),
    Mutant(
        "CopiedThrough is the highest copied offset",
        {"a_run": False},
        Rules(
            logs=((1, 1, 1), (1, 1, 1)), copied=((0, (1,)), (2, (1, 1, 1))), records=3, segments=4
        ),
        "report A 2; expire A; expire A",
    ),
    Mutant(
        "CopiedThrough is not bounded by the own high watermark",
        {"below_own_watermark": False},
        BEHIND,
        why="a FINISHED segment was below a high watermark, and (epoch, offset) says of which log",
    ),
    Mutant(
        "a segment that is in part on the chain counts as a copy",
        {"whole_segments": False},
        PART,
        "elect uncleanly B; barrier B F 0; land F 0 2.1; settle B; report B 0; expire "
        "B; new disk A; learn A",
    ),
    Mutant(
        "a follower tells by what it has read before",
        {"asked_again": False},
        replace(ONE, losses=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 1.1; topic loses "
        "2; report B 0; expire B",
    ),
    Mutant(
        "CopiedThrough outlives lost records of the topic",
        {"forgotten_at_loss": False},
        replace(ONE, losses=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 1.1; report A 0; "
        "topic loses 2; expire A",
    ),
    Mutant(
        "what was told before records were lost arrives after that",
        {"link_in_order": False},
        replace(ONE, losses=1, late_reports=1),
        "copy A 0-0 0; land S 0 1.1; put A 0; finish A 0; land F 0 1.1; report sent A "
        "0; topic loses 2; report arrives A; expire A",
    ),
    Mutant(
        "CopiedThrough outlives a truncation",
        {"cut_at_truncation": False},
        COPIED,
        "elect uncleanly B; learn A; report A 1; expire A; fetch A; append B; fetch "
        "A; expire A; fetch A; barrier B F 1; land F 1 2.1; settle B; join A",
    ),
    Mutant(
        "CopiedThrough outlives a leader epoch",
        {"forgotten_at_epoch": False},
        COPIED,
        why="what was copied on this chain stays so until the chain is cut, and that cuts it",
    ),
    Mutant(
        "a late report is not compared with the chain",
        {"report_fits_chain": False},
        replace(COPIED, late_reports=1),
        "elect uncleanly B; learn A; report sent A 1; fetch A; append B; fetch A; "
        "fetch A; barrier B F 1; land F 1 2.1; settle B; join A; report arrives A; "
        "expire A; expire A",
    ),
    Mutant(
        "a report of an earlier leader epoch is taken",
        {"report_names_epoch": False},
        replace(COPIED, late_reports=1),
        why="it fits the chain, or is refused for that",
    ),
    Mutant(
        "a follower joins with an older log start",
        {"joins_by_start": False},
        replace(ONE, in_sync=(0,), deletes=1),
        "fetch B; delete records A 1; join B",
    ),
    Mutant(
        "DeleteRecords is answered before the ISR has the log start",
        {"answered_by_all": False},
        replace(ONE, deletes=1),
        "delete records A 1",
    ),
    Mutant(
        "a log start stays above what was truncated",
        {"start_falls": False},
        replace(BEHIND, deletes=1, moves=1, epochs=3),
        "delete records A 2; elect uncleanly B; learn A; fetch A; append B; fetch A; "
        "fetch A; barrier B N 255; land N 255 2.1; settle B; join A; move A; barrier "
        "A N 255; land N 255 3.1; settle A",
    ),
    Mutant(
        "the chain forgets the epoch of the last committed record when that is deleted",
        {"keeps_last_epoch": False},
        replace(COPIED, deletes=1, moves=1, epochs=3),
        "elect uncleanly B; learn A; fetch A; fetch A; barrier B F 1; land F 1 2.1; "
        "settle B; join A; append B; delete records B 1; move A; learn B; fetch B",
    ),
    Mutant(
        "a new leader is validated by what was not deleted since it leads",
        {"validated_as_taken_over": False},
        replace(COPIED, deletes=1),
        "elect uncleanly B; append B; delete records B 1; expire B; barrier B F 1; "
        "land F 1 2.1; settle B",
    ),
    Mutant(
        "a log that is cut below its local start continues from there",
        {"cut_below_local_is_bootstrap": False},
        COPIED,
        "elect uncleanly B; learn A; report A 1; expire A; expire A; fetch A",
    ),
    Mutant(
        "a bootstrap begins at the leader's local start",
        {"begins_behind_segment": False},
        BORDERS,
        "bootstrap B 0; complete B; rename old B; rename new B",
    ),
    Mutant(
        "a bootstrap takes its begin for its log start",
        {"takes_start": False},
        replace(AWAY, moves=1),
        "bootstrap B 1; complete B; rename old B; rename new B; fetch B; join B; move "
        "B; barrier B F 1; land F 1 2.1; settle B",
    ),
    Mutant(
        "a bootstrap takes a segment whose index begins above the log start",
        {"index_reaches_start": False},
        CLIPPED,
        "raise A 1; copy A 1-1 1; land S 1 1.1; put A 1; finish A 1; land F 1 1.1; "
        "report B 1; expire B; move B; leave A; new disk A; learn A; bootstrap A 1; "
        "complete A; rename old A; rename new A; fetch A; join A",
    ),
    Mutant(
        "a bootstrap does not restore the chain",
        {"restores_chain": False},
        AWAY,
        "bootstrap B 1; complete B; rename old B; rename new B; fetch B; join B",
    ),
    Mutant(
        "a bootstrapped log has no high watermark",
        {"end_is_committed": False},
        replace(AWAY, moves=1),
        why="it learns it by its next Fetch, before it may join",
    ),
    Mutant(
        "the renames begin before the directory is complete",
        {"complete_first": False},
        replace(AWAY, kills=1, epochs=3),
        "bootstrap B 1; rename old B; kill B",
    ),
    Mutant(
        "a start finishes renames that were not begun",
        {"start_looks_at_old": False},
        replace(AWAY, logs=((1, 1), (1,)), unclean=1, kills=1, epochs=3),
        "bootstrap B 1; kill B",
    ),
    Mutant(
        "a directory built under an earlier leader is swapped in",
        {"ends_with_epoch": False},
        replace(AWAY, logs=((1, 1), (1,)), unclean=1, moves=1, epochs=4),
        "bootstrap B 1; elect uncleanly B; learn A; bootstrap A; complete A; rename "
        "old A; rename new A; fetch A; append B; fetch A; fetch A; barrier B F 1; "
        "land F 1 2.1; settle B; join A; move A; learn B; complete B; rename old B; "
        "rename new B",
    ),
]
