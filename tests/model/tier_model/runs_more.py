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
COLD: Shape = {"cold": True, "renewed": "start"}  # directories are copied while the machine is off
CLAIM_MUTANTS: tuple[Run, ...] = mutants(
    claim("K1 no claim", claims=False),
    claim("K2 copies before the claim was judged", COLD, backup=True, work_waits=False),
    claim("K3 judged by the counter, killed once", COLD, backup=True, judged_by="counter"),
    claim("K4 judged by a number, killed twice", judged_by="number", restarts=2),
    claim("K5 claimed at starts only, copied while running", backup=True, renewed="start"),
    claim("K6 claimed before the record that announces", backup=True, renewed="before"),
    claim("K7 equal numbers of two starts", owner=False),
    claim("K8 a start between claim and write", at_once=False),
    claim("K9 no file, a claim: goes on", backup=True, fileless=True, missing="goes on"),
)
CLAIM: tuple[Run, ...] = (
    claim("K10 restored, copied while stopped", COLD, backup=True),
    claim("K11 clone, copied while stopped", COLD),
    claim("K12 restored, copied while running", backup=True),
    claim("K13 clone, copied while running", ids=2),
    claim("K14 copy without the file", fileless=True),
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
    *CLAIM,
)
