"""How long the asker of a quorum waits for each answer; the client and the clock are made up."""

from collections.abc import Iterable, Iterator, Mapping

import pytest

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_client.transport import Address
from kafka_protocol.wire.schema import Versions
from tests.support.sim.clock import ManualClock
from tidemark.quorum.asking import Limits, QuorumAsker
from tidemark.quorum.description import QuorumError


class Hung(BlockingClient):
    """One address that takes connections and answers nothing."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("hung:1")
        self.clock = clock
        self.waited_ms: list[int] = []

    def present(
        self, addresses: Iterable[Address], timeout_s: float, problems: list[ClusterError]
    ) -> Iterator[Address]:
        yield from addresses

    def versions(self, address: Address) -> Mapping[int, Versions]:
        self.waited_ms.append(round(self.timeout_s * 1000))
        self.clock.advance(self.waited_ms[-1])
        raise UnreachableError("hung:1: timed out") from TimeoutError("timed out")


@pytest.mark.parametrize(
    ("request_timeout_ms", "waited_ms"),
    [
        (60_000, [1_000, 2_000, 4_000, 8_000, 4_600]),
        (3_000, [1_000, 2_000] + [3_000] * 5 + [1_300]),
    ],
)
def test_a_hung_address_gets_more_time_each_round_until_the_time_is_over(
    request_timeout_ms: int, waited_ms: list[int]
) -> None:
    """One that is slow, and the only one, would else never describe the quorum."""
    clock = ManualClock()
    client = Hung(clock)
    limits = Limits(api_timeout_ms=20_000, request_timeout_ms=request_timeout_ms)
    asker = QuorumAsker(
        client, limits, clock, of_controllers=True, pause=lambda s: clock.advance(round(s * 1000))
    )
    with pytest.raises(QuorumError, match="within 20000 ms"):
        asker.describe()
    assert client.waited_ms == waited_ms
