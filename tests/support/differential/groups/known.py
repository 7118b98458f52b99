"""Where our answers about groups differ from Kafka's, and why: `docs/groups-beside-kafka.md`.

Each rule is an expression that matches whole lines of a comparison.
"""

KNOWN: dict[str, str] = {}
