"""Asks a cluster how it is: brokers, controllers and their pages, all within one deadline.

Whoever does not answer is a fact, no error: a node that is down or stands still costs one patience,
which all nodes share that are asked at the same time.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.image.image import ResourceType
from runtime.clock import Clock
from tidemark.quorum.asking import Limits, QuorumAsker
from tidemark.quorum.client_settings import ClientSettings
from tidemark.quorum.description import QuorumDescription, QuorumError
from tidemark.status.facts import PAGE_KEY, TIER_KEY, VOTERS_KEY, ClusterFacts, NodeFacts
from tidemark.status.pages import page_address, read_page

_CLUSTER_VERSION: Final = 2
_CONFIGS_VERSION: Final = 4
_METADATA_VERSION: Final = 12
_CONTROLLERS: Final = 2
_PATIENCE_MS: Final = 2_000
"""For one node, or for all that are asked at the same time."""
_QUORUM_SHARE: Final = 2
"""The quorum is asked again and again while it has no leader, in half of the time that is left."""


class StatusAsker:
    """Asks once."""

    def __init__(
        self, servers: str | None, controllers: str | None, settings: ClientSettings, clock: Clock
    ) -> None:
        """Nothing is asked yet.

        Args:
            servers: brokers' addresses; None: brokers are not asked.
            controllers: controllers' addresses; None: those that a broker names.
            settings: how long, and under which name.
            clock: measures that.
        """
        self._servers, self._controllers = servers, controllers
        self._settings, self._clock = settings, clock
        self._ends_ms = 0

    def ask(self) -> ClusterFacts:
        """Ask.

        Raises:
            ClusterError: an address that was given is none.
        """
        self._ends_ms = self._clock.monotonic_ms() + self._settings.api_timeout_ms
        facts = ClusterFacts()
        if self._servers is not None:
            with BlockingClient(self._servers, self._settings.client_id) as client:
                self._ask_brokers(client, facts)
        given = self._controllers
        with BlockingClient(given or self._servers or "", self._settings.client_id) as client:
            self._ask_controllers(client, facts)
        self._read_pages((*facts.controllers.values(), *(facts.brokers or {}).values()))
        return facts

    # -- brokers ----------------------------------------------------------------------------------

    def _ask_brokers(self, client: BlockingClient, facts: ClusterFacts) -> None:
        problems: list[ClusterError] = []
        for address in client.present(client.bootstrap, self._limit_s(), problems):
            try:
                self._ask_a_broker(client, address, facts)
                break
            except ClusterError as error:
                problems.append(error)
        if facts.brokers is None:
            facts.broker_silence = "; ".join(map(str, problems))
            return
        self._ask_nodes(client, facts.brokers.values())

    def _ask_a_broker(self, client: BlockingClient, address: Address, facts: ClusterFacts) -> None:
        cluster = self._cluster(client, address, include_fenced_brokers=True)
        topics = self._ask(
            client,
            address,
            ApiKey.METADATA,
            _METADATA_VERSION,
            topics=None,
            allow_auto_topic_creation=False,
        ).topics
        partitions = [(topic.name, one) for topic in topics for one in topic.partitions]
        facts.cluster_id = cluster.cluster_id
        facts.partition_count = len(partitions)
        facts.offline = sorted(
            f"{name}-{one.partition_index}" for name, one in partitions if one.leader_id < 0
        )
        facts.brokers = {
            one.broker_id: NodeFacts(one.broker_id, (one.host, one.port), one.is_fenced)
            for one in sorted(cluster.brokers, key=lambda one: one.broker_id)
        }

    # -- controllers ------------------------------------------------------------------------------

    def _ask_controllers(self, client: BlockingClient, facts: ClusterFacts) -> None:
        of_controllers = self._controllers is not None
        if of_controllers or facts.brokers is not None:
            try:
                facts.quorum = self._describe(client, of_controllers=of_controllers)
            except (ClusterError, QuorumError) as error:
                facts.quorum_silence = str(error)
        found = _of_settings((facts.brokers or {}).values())
        if of_controllers:
            found |= self._named_by_controllers(client)
        if facts.quorum is not None:
            facts.cluster_id = facts.quorum.cluster_id
            for voter in facts.quorum.voters:
                places = facts.quorum.endpoints.get(voter.id, ())
                known = found.get(voter.id)
                found[voter.id] = (places[0].host, places[0].port) if places else known
        facts.controllers = {one: NodeFacts(one, found[one]) for one in sorted(found)}
        self._ask_nodes(client, facts.controllers.values())

    def _describe(self, client: BlockingClient, *, of_controllers: bool) -> QuorumDescription:
        limits = Limits(max(1, self._left_ms() // _QUORUM_SHARE), self._settings.request_timeout_ms)
        return QuorumAsker(client, limits, self._clock, of_controllers=of_controllers).describe()

    def _named_by_controllers(self, client: BlockingClient) -> dict[int, Address | None]:
        """Those that have registered, by what any of the given ones says."""
        problems: list[ClusterError] = []
        for address in client.present(client.bootstrap, self._limit_s(), problems):
            try:
                cluster = self._cluster(client, address, endpoint_type=_CONTROLLERS)
                return {one.broker_id: (one.host, one.port) for one in cluster.brokers}
            except ClusterError as error:
                problems.append(error)
        return {}

    # -- any node ---------------------------------------------------------------------------------

    def _ask_nodes(self, client: BlockingClient, nodes: Iterable[NodeFacts]) -> None:
        """Ask each for its settings; those that do not answer cost one patience together."""
        by_address = {one.address: one for one in nodes if one.address is not None}
        problems: list[ClusterError] = []
        present = []
        for address in client.present(by_address, self._limit_s(), problems):
            present.append(address)
            node = by_address[address]
            try:
                node.settings = self._settings_of(client, address, node.id)
            except UnreachableError as error:
                node.silence = str(error)
            except ClusterError:
                continue  # it answers, and does not show its settings
        for address, node in by_address.items():
            if address not in present:
                shown = f"{address[0]}:{address[1]}: "
                said = [str(one) for one in problems if str(one).startswith(shown)]
                node.silence = said[0] if said else f"{shown}it does not answer"

    def _settings_of(
        self, client: BlockingClient, address: Address, node_id: int
    ) -> dict[str, str]:
        keys = [PAGE_KEY, TIER_KEY, VOTERS_KEY]
        resource = codec.request(ApiKey.DESCRIBE_CONFIGS).cls.Resources(
            resource_type=ResourceType.BROKER,
            resource_name=str(node_id),
            configuration_keys=keys,
        )
        answer = self._ask(
            client, address, ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION, resources=[resource]
        )
        (result,) = answer.results
        _check(result, f"{address[0]}:{address[1]}: it does not describe node {node_id}")
        return {one.name: one.value for one in result.configs if one.value is not None}

    def _read_pages(self, nodes: Iterable[NodeFacts]) -> None:
        for node in nodes:
            if node.address is None or node.silence:
                continue
            address = page_address(node.settings.get(PAGE_KEY, ""), node.address)
            if address is not None:
                node.page = read_page(address, node.id, self._limit())

    def _limit(self) -> Callable[[], float]:
        """Seconds that one node has from now on."""
        ends_ms = self._clock.monotonic_ms() + self._limit_ms()
        return lambda: (ends_ms - self._clock.monotonic_ms()) / 1000

    # -- questions --------------------------------------------------------------------------------

    def _cluster(self, client: BlockingClient, address: Address, **fields: Any) -> Any:
        answer = self._ask(client, address, ApiKey.DESCRIBE_CLUSTER, _CLUSTER_VERSION, **fields)
        _check(answer, f"{address[0]}:{address[1]} refuses DescribeCluster")
        return answer

    def _ask(
        self, client: BlockingClient, address: Address, api_key: ApiKey, version: int, **fields: Any
    ) -> Any:
        client.timeout_s = self._limit_s()
        return client.ask(address, api_key, version, codec.request(api_key).cls(**fields))

    def _limit_s(self) -> float:
        return self._limit_ms() / 1000

    def _limit_ms(self) -> int:
        return max(1, min(_PATIENCE_MS, self._left_ms()))

    def _left_ms(self) -> int:
        return self._ends_ms - self._clock.monotonic_ms()


def _of_settings(brokers: Iterable[NodeFacts]) -> dict[int, Address | None]:
    """Controllers as `controller.quorum.voters` of brokers names them."""
    found: dict[int, Address | None] = {}
    for broker in brokers:
        for text in broker.settings.get(VOTERS_KEY, "").split(","):
            node_id, _, place = text.strip().partition("@")
            host, _, port = place.rpartition(":")
            if node_id.isdecimal() and port.isdecimal() and host:
                found[int(node_id)] = (host.strip("[]"), int(port))
    return found


def _check(answer: Any, refused: str) -> None:
    if answer.error_code:
        known: Mapping[int, str] = {int(code): code.name for code in ErrorCode}
        code = known.get(answer.error_code, f"error {answer.error_code}")
        raise ClusterError(f"{refused}: {code}: {answer.error_message or ''}".rstrip(": "))
