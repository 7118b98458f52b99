"""The network between nodes, with the wire's codec where the plan says so."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_protocol.wire.codec import request as request_codec
from kafka_protocol.wire.codec import response as response_codec
from metadata_topic.quorum.log.fetched import NO_DATA, checked_prefix
from metadata_topic.quorum.wire.requests import Refused, admit, write_request
from metadata_topic.quorum.wire.responses import read_answer, records_of, write_answer
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity, api_of
from metadata_topic.raft.messages import FetchRequest, FetchResponse, Node, Request, Response
from tests.support.quorum_world.plan import CLUSTER_ID
from tests.support.raft.errors import Violation
from tests.support.raft.sim_net import SimNet
from tests.support.raft.sim_node import Route

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode

IDENTITY = WireIdentity(CLUSTER_ID)


def carried(request: Request) -> Request:
    """What becomes of a request on the wire."""
    api_key = api_of(request)
    version, codec = VERSIONS[api_key].last, request_codec(api_key)
    encoded = codec.encode(write_request(request, version, IDENTITY), version)
    body, _ = codec.decode(encoded, version)
    read = admit(api_key, version, body, IDENTITY, _nothing)
    if isinstance(read, Refused):
        raise Violation("what a node asks can be asked", f"{request}: {read.answer}")
    return read


def _nothing() -> Any:
    raise AssertionError("only a refusal asks for the standing")


def carried_back(request: Request, response: Response) -> Response:
    """What becomes of an answer on the wire."""
    api_key = api_of(request)
    version, codec = VERSIONS[api_key].last, response_codec(api_key)
    encoded = bytes(codec.encode(write_answer(response, version), version))
    body, _ = codec.decode(encoded, version)
    found = checked_prefix(records_of(body)) if isinstance(request, FetchRequest) else NO_DATA
    return read_answer(request, body, found)


class QuorumNet(SimNet):
    """See the module."""

    def arrival(self) -> int:
        """When something that is sent now arrives."""
        return self._arrival()

    def is_lost_for_clients(self) -> bool:
        """Whether what a client sends or should hear is lost; nothing is cut off for them."""
        return bool(self.loss) and self.world.net_dice.random() < self.loss

    def send(self, source: "QuorumNode", to: Node, request: Request, number: int) -> None:
        """Bring a request to where it is addressed."""
        world: Any = self.world
        target = world.addresses.who_answers(to)
        route: Any = (source, source.life, number)
        if target is None:
            self._is_refused(route)
            return
        if self._is_lost(source, target, request):  # type: ignore[arg-type]
            return
        if world.plan.wire:
            request = carried(request)
        world.at_any_life(self._arrival(), target, self._arrives, target, route, request)
        if self.duplication and world.net_dice.random() < self.duplication:
            arrival = self._arrival()
            world.at_any_life(arrival, target, self._arrives, target, route, request)

    def answer(
        self, source: "QuorumNode", route: Route, request: Request, response: Response
    ) -> None:
        """Bring an answer back, if its asker still lives."""
        if self.world.plan.wire:  # type: ignore[attr-defined]
            response = carried_back(request, response)
        elif isinstance(response, FetchResponse) and response.data:
            found = checked_prefix(response.data)
            response = replace(response, batches=found.batches, data=found.data, fault=found.fault)
        self.response(source, route, response)  # type: ignore[arg-type]
