"""Field 10004 (F), followers of a red leader (G), a lost counter (H), damages of several kinds (I),
the claim (K)."""

from tier_model.shapes import (
    BOTH,
    CUT,
    DIR,
    FILES,
    LEFT,
    LINES,
    ONCE,
    ONE,
    PAIR,
    Run,
    Shape,
    claim,
    mutants,
    tier,
)

UNCLEAN_MUTANTS: tuple[Run, ...] = mutants(
    tier("F1 nobody knows of the unclean election", LINES, elections=1, unclean_known="nobody"),
    tier("F2 reported as recovered at once", LINES, elections=2, recovered_at="election"),
)
UNCLEAN: tuple[Run, ...] = (
    tier("F3 the image keeps a flag, no epoch", LINES, elections=2, recovering_keeps="flag"),
)
TWO_LOGS: Shape = {**DIR, "solo": False, "expire": BOTH, "ids": 2, "check_followers": True}
FOLLOWER_MUTANTS: tuple[Run, ...] = mutants(
    tier("G1 a follower truncates to whatever leads", TWO_LOGS, follow="any"),
    tier("G2 adopted, though a replica has it", TWO_LOGS, follow="judged", elect_whole=False),
)
FOLLOWERS: tuple[Run, ...] = (
    tier("G3 truncates only to a green leader", TWO_LOGS, follow="judged"),
    tier("G4 truncates only after an unclean election", TWO_LOGS),
    tier("G5 the same with an unclean election", TWO_LOGS, elections=1, unclean=1),
)
COUNTERLESS: Shape = {**ONE, "solo": True, "tier_deaths": 1, "damages": 1, "kinds": ("counter",)}
COUNTER_MUTANTS: tuple[Run, ...] = mutants(
    tier("H1 a lost counter begins anew", COUNTERLESS, ids=2, counter_lost="anew"),
)
COUNTER: tuple[Run, ...] = (
    tier("H2 a lost counter, clock set back", COUNTERLESS, ids=2),
    tier("H3 a lost counter, clock set back, election", PAIR, COUNTERLESS, solo=False, ids=2),
)
SHORT: Shape = {"logs": ((1,), (1,)), "ids": 2}
SEVERAL: tuple[Run, ...] = (
    tier("I1 files and the whole directory", DIR, damages=2, kinds=(*FILES, "dir"), ids=2),
    tier("I2 topic cut back, then directory", CUT, DIR, kinds=("dir", "dir+start"), ids=2),
    tier("I3 old cluster metadata and files", ONCE, SHORT, damages=2, kinds=("oldmeta", *FILES)),
    tier("I4 counter and files", ONCE, SHORT, damages=2, kinds=("counter", *FILES)),
    tier("I5 off-chain segments, topic cut back, files", LEFT, CUT, damages=1, kinds=FILES, ids=4),
    tier("I6 topic cut back, counter", CUT, damages=1, kinds=("counter",)),
    tier("I7 topic cut back, old cluster metadata", CUT, SHORT, damages=1, kinds=("oldmeta",)),
)
SEVERAL_MUTANTS: tuple[Run, ...] = mutants(
    tier(
        "I8 a gap settles the log start",
        CUT,
        DIR,
        kinds=("dir", "dir+start"),
        ids=2,
        adopt_keeps=False,
        gap_proves=True,
    ),
)
COLD: Shape = {"cold": True}  # directories are copied only while the machine is off
BACKUP: Shape = {"backup": True}  # the copy is put back when the machine is dead
ALONE: Shape = {"copies": False}
APART: Shape = {"clock": "apart"}
CLAIM_MUTANTS: tuple[Run, ...] = mutants(
    claim("K1 no claim", COLD, BACKUP, claims=False),
    claim("K2 copies before the claim was judged", COLD, BACKUP, work_waits=False),
    claim("K3 judged by the counter, killed once", COLD, BACKUP, judged_by="counter"),
    claim("K4 judged by the last number noted, clocks apart", COLD, APART, judged_by="last"),
    claim("K5 not taken again", BACKUP, renewed=False),
    claim("K6 not taken at a stop", BACKUP, at_stop=False),
    claim("K7 a running renewal is the stop's claim", BACKUP, stop_waits=False),
    claim("K8 taken again without a look", renewal_reads=False),
    claim("K9 noted after the put", ALONE, noted="after"),
    claim("K10 a lost counter below the claim", APART, damages=1, above_found=False),
    claim("K11 a damaged claim is none", COLD, BACKUP, damages=1, damaged="none"),
    claim("K12 a command that notes nothing", COLD, BACKUP, command_notes=False),
    claim("K13 one number remembered", ALONE, late=1, failures=1, attempts=2, remembered=2),
    claim("K14 a command forgets what it found", COLD, APART, obeyed=False, command_forgets=True),
)
CLAIM_COMMAND: tuple[Run, ...] = mutants(
    claim("K32 a command removes a damaged claim", COLD, BACKUP, damages=1, command_puts=False),
)
# What the rules do not promise, each with its story.
CLAIM_LIMITS: tuple[Run, ...] = mutants(
    claim("K15 a copy younger than an interval", BACKUP, promises_untold=True),
    claim("K16 a copy without the file", COLD, BACKUP, damages=1, promises_fileless=True),
    claim("K17 the same number twice", COLD, clock="equal"),
    claim("K18 a start between reading and put", COLD, at_once=False),
    claim("K19 a put lands late, after a clone's", COLD, late=1),
)
CLAIM: tuple[Run, ...] = (
    claim("K20 restored, copied while stopped", COLD, BACKUP),
    claim("K21 restored, copied while running", BACKUP),
    claim("K22 clone, copied while stopped", COLD),
    claim("K23 clone, copied while running"),
    claim("K24 restored, counter lost, claim damaged", COLD, BACKUP, damages=2),
    claim("K25 restored, copied while running, lost or damaged", BACKUP, damages=1),
    claim("K26 clone, lost or damaged", COLD, damages=1),
    claim("K27 restored, clocks apart", BACKUP, APART),
    claim("K28 clone, clocks apart", COLD, APART),
    claim("K29 restored, the store away at times", BACKUP, failures=2),
    claim("K30 clone, the store away at times", COLD, failures=1),
    claim("K31 puts land late, nobody else", ALONE, APART, late=2, failures=1, remembered=5),
)
MORE = (
    *UNCLEAN_MUTANTS,
    *UNCLEAN,
    *FOLLOWER_MUTANTS,
    *FOLLOWERS,
    *COUNTER_MUTANTS,
    *COUNTER,
    *SEVERAL_MUTANTS,
    *SEVERAL,
    *CLAIM_MUTANTS,
    *CLAIM_COMMAND,
    *CLAIM_LIMITS,
    *CLAIM,
)
