"""The configuration keys of Tidemark alone, all under `tidemark.`."""

from typing import Final

from broker.config.key import BOOLEAN, INT, LIST, LONG, STRING, ConfigType, Key
from runtime.log_lines import FORMATS

TIDEMARK_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "tidemark.http.listener",
        STRING,
        "",
        "host:port of the HTTP page with health, readiness and metrics; empty: off.",
        resource=True,
    ),
    Key(
        "tidemark.console.enable",
        BOOLEAN,
        None,
        "Serve the page for people at /; unset: where tidemark.http.listener is on loopback.",
    ),
    Key(
        "tidemark.console.hosts",
        LIST,
        "",
        "Names by which browsers may reach it, beside loopback's and tidemark.http.listener's.",
    ),
    Key(
        "tidemark.control.listener",
        STRING,
        "",
        "host:port on loopback that takes commands of tests (clock, tier, faults); empty: off.",
        resource=True,
    ),
    Key(
        "tidemark.control.token",
        ConfigType.PASSWORD,
        "",
        "Senders of commands must know it; at least 16 characters.",
        resource=True,
    ),
    Key(
        "tidemark.cluster.secret.file",
        STRING,
        "",
        "File with one line, the same on all brokers, by which their tiers know each other.",
        resource=True,
    ),
    Key(
        "tidemark.connection.in.flight.max",
        INT,
        "256",
        "Unanswered requests of one connection; at so many, reading from it pauses.",
        low=1,
    ),
    Key(
        "tidemark.connection.unsent.bytes.max",
        INT,
        "8388608",
        "Bytes of answers waiting for one peer; above, reading from it pauses.",
        low=1,
    ),
    Key(
        "tidemark.connections.unsent.bytes.max",
        LONG,
        "268435456",
        "Answers in memory waiting for all peers; above, connections with the most are closed.",
        low=1,
    ),
    Key(
        "tidemark.decoded.request.bytes.max",
        LONG,
        "67108864",
        "Objects of requests above 32 KiB, about; an address has half, the rest wait undecoded.",
        low=1,
    ),
    Key(
        "tidemark.connection.write.timeout.ms",
        INT,
        "60000",
        "How long a peer may take no byte of its answers before its connection is closed.",
        low=1,
    ),
    Key(
        "tidemark.follower.bootstrap.hold.ms",
        LONG,
        "600000",
        "How long a leader keeps local segments from where a follower was sent to begin; 0: off.",
        low=0,
    ),
    Key(
        "tidemark.group.bytes.max",
        LONG,
        "536870912",
        "Memory of groups and their offsets, about: no new ones above, no growth a quarter above.",
        low=1,
    ),
    Key(
        "tidemark.log.format",
        STRING,
        "text",
        "Form of log lines, those of the tier process too: text, or a JSON object a line.",
        choices=FORMATS,
    ),
    Key(
        "tidemark.log.level",
        LIST,
        "INFO",
        "DEBUG, INFO, WARN or ERROR for all of the log, PACKAGE=LEVEL for one package of it.",
        non_empty=True,
    ),
    Key(
        "tidemark.request.receive.timeout.ms",
        INT,
        "30000",
        "Time for a request, or for 64 KiB more of a long one; then its connection is closed.",
        low=1,
    ),
    Key(
        "tidemark.remote.call.max.ms",
        LONG,
        "120000",
        "Longest time a read or delete call of the plugin may take; then its thread is replaced.",
        low=1,
    ),
    Key(
        "tidemark.remote.chunk.cache.bytes",
        LONG,
        "134217728",
        "Memory for bytes fetched from the remote store. Eight readers at a time need about "
        "16 MiB each.",
        low=1 << 20,
    ),
    Key(
        "tidemark.remote.chunk.cache.dir",
        STRING,
        "",
        "Where the directory `remote-log-chunk-cache` is made; empty: in the first log directory.",
    ),
    Key(
        "tidemark.remote.chunk.cache.disk.bytes",
        LONG,
        "0",
        "Disk space for fetched bytes that memory has no room for; emptied at each start; 0: off.",
        low=0,
    ),
    Key(
        "tidemark.remote.chunk.cache.policy",
        STRING,
        "scan-resistant",
        "What leaves the chunk cache first: what one reader has read, or (`lru`) what was read "
        "longest ago.",
        choices=("scan-resistant", "lru"),
    ),
    Key(
        "tidemark.remote.claim.interval.ms",
        LONG,
        "300000",
        "How often the tier renews its claim, by which older copies of its directories are found.",
        low=100,
    ),
    Key(
        "tidemark.remote.copy.max.ms",
        LONG,
        "3600000",
        "Longest time the copy of one segment may take; one value for the whole cluster.",
        low=1,
    ),
    Key(
        "tidemark.remote.delete.failing.ms",
        LONG,
        "600000",
        "Health is yellow when a deletion in the remote store fails for longer; later it is "
        "unhealthy.",
        low=1,
    ),
    Key(
        "tidemark.remote.delete.grace.ms",
        LONG,
        "60000",
        "Wait between marking a deleted topic's remote data and deleting it.",
        low=0,
    ),
    Key(
        "tidemark.tier.advertised.listener",
        STRING,
        "",
        "host:port of tidemark.tier.listener that other brokers' tiers are given; empty: the same.",
        resource=True,
    ),
    Key(
        "tidemark.tier.listener",
        STRING,
        "",
        "host:port where all brokers' tiers come in; empty: a free port of loopback.",
        resource=True,
    ),
)
