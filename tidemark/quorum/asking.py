"""Asks a running quorum to describe itself, over plain TCP.

Only the leader can. A controller says in DescribeCluster who leads and where; the question goes
there, and where the leader has changed meanwhile it begins again, as with Kafka's admin client. A
broker passes the question on itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.wire.rpc import PARTITION, TOPIC
from runtime.clock import Clock
from tidemark.quorum.description import QuorumDescription, QuorumError, described
from tidemark.quorum.voters import VoterQuestion

T = TypeVar("T")

_CONTROLLERS: Final = 2
_ENDPOINT_TYPES: Final = 1
"""First version of DescribeCluster that tells brokers and controllers apart."""
_PAUSE_S: Final = 0.1
_PATIENCE_MS: Final = 500
"""Half of what the first round has for each question."""


class _AgainError(ClusterError):
    """Another attempt may succeed; the text says what is missing now."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to ask.

    Attributes:
        api_timeout_ms: in all.
        request_timeout_ms: one request.
    """

    api_timeout_ms: int
    request_timeout_ms: int


class QuorumAsker:
    """Asks until somebody describes the quorum, or the time is over."""

    def __init__(
        self,
        client: BlockingClient,
        limits: Limits,
        clock: Clock,
        *,
        of_controllers: bool,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the parts; nothing is asked yet.

        Args:
            client: its bootstrap addresses are asked first.
            limits: how long to ask.
            clock: measures that.
            of_controllers: the addresses are controllers'; else brokers'.
            pause: waits so many seconds, between two rounds of attempts.
        """
        self._client, self._limits, self._clock = client, limits, clock
        self._of_controllers, self._pause = of_controllers, pause
        self._learned: dict[Address, None] = {}
        self._deadline_ms = self._patience_ms = 0
        self._hangs = False  # an address of the last round took the connection and said nothing

    def describe(self) -> QuorumDescription:
        """Ask how the quorum is.

        Raises:
            QuorumError: no controller answers, none leads, or they refuse.
        """
        return self._ask_leader("described the quorum", self._described)

    def change(self, question: VoterQuestion) -> None:
        """Have the voters changed; returns when that is committed.

        Asked again where the answer was lost, it may be refused because it is done.

        Raises:
            QuorumError: as `describe`.
        """

        def ask(address: Address, cluster_id: str) -> bool:
            return self._changed(question, address, cluster_id)

        self._ask_leader("changed the voters", ask)

    def _ask_leader(self, what: str, ask: Callable[[Address, str], T]) -> T:
        """Ask one that leads, or passes the question on, and is of the cluster that is named."""
        self._deadline_ms = self._clock.monotonic_ms() + self._limits.api_timeout_ms
        self._patience_ms = _PATIENCE_MS
        while True:
            found, problems = self._round(ask)
            if found is not None:
                return found
            if not (self._learned or self._hangs):
                raise QuorumError("; ".join(problems))
            if self._left_ms() <= _PAUSE_S * 1000:
                raise QuorumError(
                    f"no controller {what} within {self._limits.api_timeout_ms} ms "
                    f"(default.api.timeout.ms): {'; '.join(problems)}"
                )
            self._pause(_PAUSE_S)

    def _round(self, question: Callable[[Address, str], T]) -> tuple[T | None, list[str]]:
        """Ask all that are there, until one leads to the answer.

        A leader that hangs may still be named by others: so no question takes all of the time, and
        each round has twice as much for each as the one before.
        """
        problems: list[ClusterError] = []
        known = (*self._client.bootstrap, *self._learned)
        self._patience_ms *= 2
        for address in self._client.present(known, self._limit_ms() / 1000, problems):
            try:
                ask = self._by_controllers if self._of_controllers else self._by_brokers
                return ask(address, question), []
            except (_AgainError, UnreachableError) as error:
                problems.append(error)
            except ClusterError as error:
                raise QuorumError(str(error)) from error
            if self._left_ms() <= 0:
                break
        self._hangs = any(isinstance(one.__cause__, TimeoutError) for one in problems)
        return None, list(dict.fromkeys(map(str, problems)))

    # -- two ways -------------------------------------------------------------------------------

    def _by_controllers(self, address: Address, question: Callable[[Address, str], T]) -> T:
        cluster = self._cluster(address)
        nodes = {node.broker_id: (node.host, node.port) for node in cluster.brokers}
        self._learned |= dict.fromkeys(nodes.values())
        self._learned.setdefault(address)
        leader = cluster.controller_id
        if leader < 0:
            raise _AgainError(f"{_text(address)} knows no leader")
        if leader not in nodes:
            raise _AgainError(f"{_text(address)} does not know where the leader {leader} listens")
        return question(nodes[leader], cluster.cluster_id)

    def _by_brokers(self, address: Address, question: Callable[[Address, str], T]) -> T:
        served = self._served(address)
        if ApiKey.METADATA not in served:
            raise QuorumError(
                f"{_text(address)} is a listener of controllers; name it in --bootstrap-controller"
            )
        if ApiKey.DESCRIBE_QUORUM not in served:
            raise QuorumError(
                f"{_text(address)} does not pass DescribeQuorum on to its controllers; name one of "
                "these in --bootstrap-controller"
            )
        self._learned.setdefault(address)
        return question(address, self._cluster(address).cluster_id)

    # -- questions ------------------------------------------------------------------------------

    def _cluster(self, address: Address) -> Any:
        """DescribeCluster; checked to be of the right kind of listener."""
        version = self._version(address, ApiKey.DESCRIBE_CLUSTER)
        if self._of_controllers and version < _ENDPOINT_TYPES:
            raise _no_controller(address)
        request = codec.request(ApiKey.DESCRIBE_CLUSTER).cls()
        if self._of_controllers:
            request.endpoint_type = _CONTROLLERS
        answer = self._ask(address, ApiKey.DESCRIBE_CLUSTER, version, request)
        if answer.error_code in (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        ):
            raise _no_controller(address)
        _check(answer, f"{_text(address)} refuses DescribeCluster")
        return answer

    def _described(self, address: Address, cluster_id: str) -> QuorumDescription:
        """DescribeQuorum of one that leads, or passes the question on."""
        request = codec.request(ApiKey.DESCRIBE_QUORUM).cls
        one = request.Topics(
            topic_name=TOPIC, partitions=[request.Topics.Partitions(partition_index=PARTITION)]
        )
        version = self._version(address, ApiKey.DESCRIBE_QUORUM)
        answer = self._ask(address, ApiKey.DESCRIBE_QUORUM, version, request(topics=[one]))
        where = f"{_text(address)} refuses DescribeQuorum"
        _check(answer, where)
        found = [part for topic in answer.topics for part in topic.partitions]
        if len(found) != 1 or answer.topics[0].topic_name != TOPIC:
            raise QuorumError(f"{_text(address)} describes {len(found)} partitions, not {TOPIC}-0")
        if found[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise _AgainError(f"{_text(address)} does not lead the quorum any more")
        _check(found[0], where)
        return described(found[0], answer.nodes, cluster_id)

    def _changed(self, question: VoterQuestion, address: Address, cluster_id: str) -> bool:
        """AddRaftVoter or RemoveRaftVoter, which may take the time of a commit."""
        api_key, body = question.api_key, question.body
        body.cluster_id = cluster_id
        version = self._version(address, api_key)
        limit_ms = max(1, min(self._left_ms(), self._limits.request_timeout_ms))
        self._client.timeout_s = limit_ms / 1000
        answer = self._client.ask(address, api_key, version, body)
        if answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER):
            raise _AgainError(f"{_text(address)} does not lead the quorum any more")
        name = codec.request(api_key).name.removesuffix("Request")
        _check(answer, f"{_text(address)} refuses {name}")
        return True

    def _version(self, address: Address, api_key: ApiKey) -> int:
        """The newest version that both sides know."""
        theirs = self._served(address).get(api_key)
        ours = codec.request(api_key)
        if theirs is None:
            raise QuorumError(
                f"{_text(address)} does not serve {ours.name.removesuffix('Request')}"
            )
        version = min(theirs.last, ours.max_version)
        if version < max(theirs.first, ours.min_version):
            raise QuorumError(
                f"{_text(address)} serves {ours.name} {theirs.first}-{theirs.last}; known here are "
                f"{ours.min_version}-{ours.max_version}"
            )
        return version

    def _served(self, address: Address) -> Mapping[int, Versions]:
        """Which APIs it announces, with their versions."""
        self._client.timeout_s = self._limit_ms() / 1000
        return self._client.versions(address)

    def _ask(self, address: Address, api_key: ApiKey, version: int, body: object) -> Any:
        self._client.timeout_s = self._limit_ms() / 1000
        return self._client.ask(address, api_key, version, body)

    def _limit_ms(self) -> int:
        """For one question."""
        limits = self._left_ms(), self._limits.request_timeout_ms, self._patience_ms
        return max(1, min(limits))

    def _left_ms(self) -> int:
        return self._deadline_ms - self._clock.monotonic_ms()


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _no_controller(address: Address) -> QuorumError:
    return QuorumError(
        f"{_text(address)} is a listener of brokers, no controller's; name it in --bootstrap-server"
    )


def _check(answer: Any, refused: str) -> None:
    if answer.error_code:
        known = {int(code): code.name for code in ErrorCode}
        code = known.get(answer.error_code, f"error {answer.error_code}")
        text = getattr(answer, "error_message", None)
        raise QuorumError(f"{refused}: {code}" + (f": {text}" if text and text != code else ""))
