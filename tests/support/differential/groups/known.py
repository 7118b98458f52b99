"""Where our answers about groups differ from Kafka's, and why: `docs/groups-beside-kafka.md`.

Each rule is an expression that matches whole lines of a comparison.
"""

KNOWN = {
    "an unreadable subscription is a subscription to nothing known": (
        r"unreadable subscription v9 .*"
    ),
    "a protocol without a name keeps its name": r"odd joins v[789] .*\.protocol_name: .*",
}
