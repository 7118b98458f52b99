"""The network between nodes: it delays, loses, duplicates, reorders, and is cut.

Where the plan says so, messages go through the wire's codec.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_protocol.wire.codec import request as request_codec
from kafka_protocol.wire.codec import response as response_codec
from metadata_topic.quorum.log.fetched import NO_DATA, checked_prefix
from metadata_topic.quorum.wire.requests import Refused, admit, write_request
from metadata_topic.quorum.wire.responses import read_answer, records_of, write_answer
from metadata_topic.quorum.wire.rpc import VERSIONS, WireIdentity, api_of
from metadata_topic.quorum.wire.voter_messages import voter_call_of, voter_request_of
from metadata_topic.raft.messages import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    Node,
    Question,
    RemoveVoterRequest,
    Reply,
    Standing,
    UpdateVoterRequest,
    VoterRequest,
    VoterResponse,
)
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.plan import CLUSTER_ID

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld

Route = tuple["QuorumNode", int, int]
"""Who asked, in which life, under which number."""
IDENTITY = WireIdentity(CLUSTER_ID)


def carried(request: Question, epoch: int) -> Question:
    """What becomes of a request on the wire.

    Args:
        request: which one.
        epoch: of the node that it goes to: not every request that changes voters names one.
    """
    if isinstance(request, ApiVersionsRequest):
        return request
    if isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
        return _carried_change(request, epoch)
    api_key = api_of(request)
    version, codec = VERSIONS[api_key].last, request_codec(api_key)
    encoded = codec.encode(write_request(request, version, IDENTITY), version)
    body, _ = codec.decode(encoded, version)
    read = admit(api_key, version, body, IDENTITY, _nothing)
    if isinstance(read, Refused):
        raise Violation("what a node asks can be asked", f"{request}: {read.answer}")
    return read


def _carried_change(request: VoterRequest, epoch: int) -> VoterRequest:
    call = voter_call_of(request, IDENTITY, lambda _: None, 1)
    version = call.versions.last
    body, _ = request_codec(call.api_key).decode(call.encode(version), version)
    read = voter_request_of(body, epoch)
    if read is None:
        raise Violation("what a node asks can be asked", f"{request}")
    return read


def _nothing() -> Any:
    raise AssertionError("only a refusal asks for the standing")


def carried_back(request: Question, response: Reply) -> Reply:
    """What becomes of an answer on the wire."""
    if isinstance(request, ApiVersionsRequest | UpdateVoterRequest):
        return response
    if isinstance(request, AddVoterRequest | RemoveVoterRequest):
        assert isinstance(response, VoterResponse)
        return replace(response, standing=Standing(request.epoch))  # it names no leader
    assert not isinstance(response, VoterResponse | ApiVersionsResponse)
    api_key = api_of(request)
    version, codec = VERSIONS[api_key].last, response_codec(api_key)
    encoded = bytes(codec.encode(write_answer(response, version), version))
    body, _ = codec.decode(encoded, version)
    found = checked_prefix(records_of(body)) if isinstance(request, FetchRequest) else NO_DATA
    return read_answer(request, body, found)


class QuorumNet:
    """See the module.

    Attributes:
        cuts: (from, to) without a way, by the moment until which; each direction for itself.
        only: if set, decides whether a message goes: (from, to, message).
    """

    def __init__(self, world: "QuorumWorld") -> None:
        self.world = world
        self.cuts: dict[tuple[int, int], int] = {}
        self.loss = world.plan.loss
        self.duplication = world.plan.duplication
        self.only: Any = None

    def cut(self, source: int, target: int, until_us: int) -> None:
        """Let nothing go from one to another until a moment."""
        self.cuts[source, target] = max(until_us, self.cuts.get((source, target), 0))

    def is_cut(self, source: int, target: int) -> bool:
        """Whether nothing goes that way now."""
        return bool(self.cuts) and self.cuts.get((source, target), 0) > self.world.now_us

    def is_lost_for_clients(self) -> bool:
        """Whether what a client sends or should hear is lost; nothing is cut off for them."""
        return bool(self.loss) and self.world.net_rng.random() < self.loss

    def send(self, source: "QuorumNode", to: Node, request: Question, number: int) -> None:
        """Bring a request to where it is addressed."""
        world = self.world
        target = world.addresses.who_answers(to)
        route = (source, source.life, number)
        if target is None:
            self._is_refused(route)
            return
        if self._is_lost(source, target, request):
            return
        if world.plan.wire:
            request = carried(request, target.core.epoch if world.runs(target) else 0)
        world.at_any_life(self.arrival(), target, self._arrives, target, route, request)
        if self.duplication and world.net_rng.random() < self.duplication:
            world.at_any_life(self.arrival(), target, self._arrives, target, route, request)

    def _arrives(self, target: "QuorumNode", route: Route, request: Question) -> None:
        if target.up:
            target.deliver(route, request)
        elif not self.is_cut(target.id, route[0].id):
            self._is_refused(route)

    def _is_refused(self, route: Route) -> None:
        """The connection is."""
        source, life, number = route
        if source.life == life:
            self.world.at_node(self.arrival(), source, source.hear, number, None)

    def answer(
        self, source: "QuorumNode", route: Route, request: Question, response: Reply
    ) -> None:
        """Bring an answer back, if its asker still lives."""
        if self.world.plan.wire:
            response = carried_back(request, response)
        elif isinstance(response, FetchResponse) and response.data:
            found = checked_prefix(response.data)
            response = replace(response, batches=found.batches, data=found.data, fault=found.fault)
        target, life, number = route
        if self._is_lost(source, target, response):
            return
        if target.life == life:
            self.world.at_node(self.arrival(), target, target.hear, number, response)

    def _is_lost(
        self, source: "QuorumNode", target: "QuorumNode", message: Question | Reply
    ) -> bool:
        if self.is_cut(source.id, target.id):
            return True
        if self.only is not None and not self.only(source.id, target.id, message):
            return True
        return bool(self.loss) and self.world.net_rng.random() < self.loss

    def arrival(self) -> int:
        """When something that is sent now arrives."""
        least, mean = self.world.delay_us
        if not mean:
            return self.world.now_us + least
        rng = self.world.net_rng
        delay = least + int(rng.random() * 2 * mean)
        if rng.random() < 0.02:
            delay *= 10
        return self.world.now_us + delay
