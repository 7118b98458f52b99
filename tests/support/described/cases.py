"""Quorums as leaders may describe them, and the two ways to print each."""

from dataclasses import dataclass

from kafka_protocol.wire.primitives import uuid_to_text
from tests.support.described.scripted_controller import Quorum

NO_DIRECTORY = uuid_to_text(bytes(16))
D1, D2, D3, D4 = (uuid_to_text(bytes([number]) * 16) for number in (1, 2, 3, 4))
NOW = 1_700_000_000_000
STATUS, REPLICATION = ("describe", "--status"), ("describe", "--replication")
HUMAN = (*REPLICATION, "--human-readable")


def _listens(*ids: int) -> dict[int, tuple[tuple[str, str, int], ...]]:
    return {i: (("CONTROLLER", f"controller-{i}", 9090 + i),) for i in ids}


QUORUMS: dict[str, Quorum] = {
    "static voters without directory ids": Quorum(
        (
            (1, NO_DIRECTORY, 1000, NOW, NOW),
            (2, NO_DIRECTORY, 1000, NOW - 80, NOW - 80),
            (3, NO_DIRECTORY, 990, NOW - 120, NOW - 700),
        ),
        nodes=_listens(1, 2, 3),
    ),
    "directory ids, the second leads, observers": Quorum(
        (
            (1, D1, 40, NOW - 9, NOW - 10_000),
            (2, D2, 1042, NOW, NOW),
            (3, D3, 1042, NOW - 3, NOW - 3),
        ),
        ((4, D4, 1001, NOW - 5, NOW - 60_000), (105, NO_DIRECTORY, 0, NOW - 1, -1)),
        _listens(1, 2, 3),
        leader_id=2,
        leader_epoch=2_147_483_647,
        high_watermark=1042,
    ),
    "one that never fetched": Quorum(
        ((1, D1, 5, NOW, NOW), (2, D2, -1, -1, -1), (3, D3, 5, NOW, NOW)),
        nodes=_listens(1, 2, 3),
        high_watermark=-1,
    ),
    "the only voter": Quorum(
        ((1, D1, 12345678901, NOW, NOW),), nodes=_listens(1), high_watermark=12345678901
    ),
    "no endpoints": Quorum(((1, D1, 7, NOW, NOW), (2, D2, 7, NOW, NOW))),
    "two endpoints, and addresses in IPv6": Quorum(
        ((1, D1, 7, NOW, NOW), (2, D2, 6, NOW, NOW - 1)),
        ((3, D3, 7, NOW, NOW),),
        {
            1: (("CONTROLLER", "::1", 9091), ("SECOND", "[::1]", 9191)),
            2: (("CONTROLLER", "c2", 65535),),
            3: (("CONTROLLER", "c3", 9093),),
        },
    ),
    "a follower that is ahead": Quorum(
        ((1, D1, 7, NOW, NOW), (2, D2, 9, NOW, NOW + 4)), nodes=_listens(1, 2)
    ),
    "all behind alike": Quorum(
        ((3, D3, 5, NOW, NOW - 3), (2, D2, 5, NOW, NOW - 2), (1, D1, 9, NOW, NOW)),
        nodes=_listens(1, 2, 3),
    ),
    "the leader has no vote": Quorum(
        ((2, D2, 5, NOW, NOW),), ((1, D1, 9, NOW, NOW),), _listens(1, 2)
    ),
    "times that nobody knows": Quorum(
        ((1, D1, 5, -1, -1), (2, D2, 4, -1, -1)), ((3, D3, 4, -1, -1),), _listens(1, 2)
    ),
}


@dataclass(frozen=True)
class Case:
    """One call; `versions`: the highest DescribeQuorum that is announced."""

    quorum: str
    arguments: tuple[str, ...]
    versions: int = 2

    @property
    def name(self) -> str:
        return f"{' '.join(self.arguments)}, version {self.versions}: {self.quorum}"


CASES = (
    *(Case(name, how) for name in QUORUMS for how in (STATUS, REPLICATION)),
    Case("times that nobody knows", HUMAN),
    *(
        Case("one that never fetched", how, last)
        for last in (0, 1)
        for how in (STATUS, REPLICATION)
    ),
)
