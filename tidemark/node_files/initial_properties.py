"""The server.properties that `tidemark init` writes: a lone node, or three, with comments.

Each of three is broker and controller. Pure: texts from facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from broker.config.properties import dump
from rsm_plugins.loader import is_python_name
from rsm_plugins.settings import PREFIX
from tidemark.dev.settings import HTTP_ABOVE

NODES: Final = 3
_APART: Final = 100
"""Between the ports of nodes that share a host."""
_LOCAL: Final = "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
_S3: Final = "rsm_plugins.s3:S3RemoteStorageManager"
_HDFS: Final = "rsm_plugins.hdfs:HdfsRemoteStorageManager"
_HDFS_SCHEMES: Final = ("hdfs", "webhdfs")


@dataclass(frozen=True, slots=True)
class Store:
    """A remote store.

    Attributes:
        class_name: of its plugin.
        settings: name, value and comment of each, names without their prefix.
        hints: settings that some need, as comments.
    """

    class_name: str
    settings: tuple[tuple[str, str, str], ...]
    hints: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Store | None":
        """Read a directory, `s3://BUCKET/PREFIX`, `hdfs://HOST:PORT/DIR`, a class or `none`.

        Raises:
            ValueError: it is none of these.
        """
        if text == "none":
            return None
        if is_python_name(text):
            module = text.partition(":")[0]
            return cls(text, (), (f"Python must find {module}: installed, or by PYTHONPATH.",))
        parts = urlsplit(text)
        if not parts.scheme:
            place = str(Path(text).absolute())
            return cls(_LOCAL, (("dir", place, "All brokers must reach the same directory."),))
        if parts.scheme == "s3" and parts.netloc:
            return cls(_S3, tuple(_s3(parts.netloc, parts.path.strip("/"))), _S3_HINTS)
        if parts.scheme in _HDFS_SCHEMES and parts.netloc and parts.path.strip("/"):
            return cls(_HDFS, (("url", text, "The root of the store."),))
        raise ValueError(
            f"{text!r}: allowed are a directory, s3://BUCKET/PREFIX, hdfs://HOST:PORT/DIR,"
            " PACKAGE.MODULE:CLASS, none"
        )

    def having(self, given: dict[str, str]) -> "Store":
        """The same store with these settings, in place of those of their names or after them."""
        names = {name: value for name, value, _ in self.settings} | given
        comments = {name: comment for name, _, comment in self.settings}
        return replace(
            self, settings=tuple((name, names[name], comments.get(name, "")) for name in names)
        )


_S3_HINTS: Final = (
    "Credentials are never settings: boto3 finds them (environment, shared files, roles).",
    "A store that is not AWS:",
    "rsm.config.endpoint.url=https://s3.example.org",
)


def _s3(bucket: str, prefix: str) -> list[tuple[str, str, str]]:
    found = [("bucket", bucket, "The bucket must be there."), ("region", "us-east-1", "")]
    return [*found, ("prefix", prefix, "")] if prefix else found


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node is.

    Attributes:
        port: for clients; that of the controller is the next one, that of the tier follows, that
            of the pages is `HTTP_ABOVE` above it.
        data: its directory.
    """

    node_id: int
    host: str
    port: int
    data: Path


def places(data: Path, port: int, hosts: Sequence[str]) -> list[NodePlace]:
    """Where the nodes are, one for each host; several on one host have ports of their own."""
    return [
        NodePlace(
            number + 1,
            host,
            port + _APART * hosts[:number].count(host),
            data if len(hosts) == 1 else data / f"node-{number + 1}",
        )
        for number, host in enumerate(hosts)
    ]


def server_properties(me: NodePlace, nodes: Sequence[NodePlace], store: Store | None) -> str:
    """The file of one node.

    Args:
        me: the node.
        nodes: all of the cluster.
        store: the remote tier; None: there is none.
    """
    copies = len(nodes)
    blocks = [
        _block(
            "This node stores records and takes part in the metadata quorum.",
            {"process.roles": "broker,controller", "node.id": str(me.node_id)},
        ),
        _block(
            "Where clients and brokers, and where controllers reach it. There is no TLS and no\n"
            "authentication of clients: keep it in a network of your own.",
            {
                "listeners": (
                    f"PLAINTEXT://{me.host}:{me.port},CONTROLLER://{me.host}:{me.port + 1}"
                ),
                "controller.listener.names": "CONTROLLER",
            },
        ),
        _quorum(nodes),
        _block(
            "Directories of the log; several, with commas between, on as many disks.",
            {"log.dirs": str(me.data / "logs")},
        ),
        _block(
            "Metrics (/metrics) and health (/health); for operators alone.",
            {"tidemark.http.listener": f"{me.host}:{me.port + HTTP_ABOVE}"},
        ),
        _copies(copies),
        _block(
            "How long records are kept where a topic says nothing.",
            {"log.retention.hours": "168"},
        ),
        _tier(me, copies, store),
    ]
    return "\n".join(blocks)


def _block(comment: str, entries: dict[str, str]) -> str:
    return "".join(f"# {line}\n" for line in comment.splitlines()) + dump(entries)


def _quorum(nodes: Sequence[NodePlace]) -> str:
    if len(nodes) == 1:
        return _block(
            "The quorum: this controller alone. `tidemark format --standalone` makes it the first\n"
            "voter; others can join later.",
            {"controller.quorum.bootstrap.servers": f"{nodes[0].host}:{nodes[0].port + 1}"},
        )
    voters = ",".join(f"{one.node_id}@{one.host}:{one.port + 1}" for one in nodes)
    return _block(
        "The quorum, the same on all nodes: two of three must run.",
        {"controller.quorum.voters": voters},
    )


def _copies(count: int) -> str:
    comment = "Copies of a partition, and how many of them acks=all needs: one may be lost."
    if count == 1:
        comment = "There is one broker: a partition has one copy."
    factors = ("default.replication.factor", "offsets.topic.replication.factor")
    return _block(
        comment,
        dict.fromkeys(factors, str(count)) | {"min.insync.replicas": str(max(1, count - 1))},
    )


def _tier(me: NodePlace, copies: int, store: Store | None) -> str:
    if store is None:
        return _block(
            "No remote tier. With one, closed segments of topics with remote.storage.enable=true\n"
            "go to a store: `tidemark init --store ...` writes the settings.",
            {"remote.log.storage.system.enable": "false"},
        )
    factor = "rlmm.config.remote.log.metadata.topic"
    entries = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": store.class_name,
    }
    text = _block(
        "The remote tier: closed segments of topics with remote.storage.enable=true go there.",
        entries,
    )
    for name, value, comment in store.settings:
        text += _block(comment, {f"{PREFIX}{name}": value})
    text += "".join(f"# {hint}\n" for hint in store.hints)
    text += _block(
        "Copies of the topic that says which segments are there.",
        {f"{factor}.replication.factor": str(copies), f"{factor}.min.isr": str(max(1, copies - 1))},
    )
    if copies > 1:
        text += _block(
            "Where the tiers of other brokers reach this one, and the secret by which they know\n"
            "each other: the same file on all nodes.",
            {
                "tidemark.tier.listener": f"{me.host}:{me.port + 2}",
                "tidemark.cluster.secret.file": str(me.data.parent / "cluster.secret"),
            },
        )
    return text
