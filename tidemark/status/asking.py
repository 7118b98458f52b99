"""Asks a cluster how it is: brokers, controllers and their pages, all within one deadline.

A node that does not answer is a fact, no error. Nodes are asked side by side: those that are silent
cost one patience together. Beside all of that one broker is asked for the partitions, page by page:
one answer cannot hold those of a large cluster.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.image.image import ResourceType
from runtime.clock import Clock
from runtime.executors import ThreadPool
from tidemark.quorum.asking import Limits, QuorumAsker
from tidemark.quorum.client_settings import ClientSettings
from tidemark.quorum.description import QuorumDescription, QuorumError
from tidemark.status.facts import PAGE_KEY, TIER_KEY, VOTERS_KEY, ClusterFacts, NodeFacts
from tidemark.status.pages import page_address, read_metrics, read_page

_CLUSTER_VERSION: Final = 2
_CONFIGS_VERSION: Final = 4
_PARTITIONS_VERSION: Final = 0
_CONTROLLERS: Final = 2
_PATIENCE_MS: Final = 2_000
"""For one node, or for all that are asked at the same time."""
_AT_ONCE: Final = 64
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
        first = None
        if self._servers is not None:
            with self._settings.client(self._servers) as client:
                first = self._find_brokers(client, facts)
        pool = ThreadPool("partitions", 1)
        try:
            asking = first and pool.submit(self._ask_for_partitions, first, facts)
            self._ask_nodes(facts)
            if asking:
                asking.result()
        finally:
            pool.shutdown()
        return facts

    def _ask_nodes(self, facts: ClusterFacts) -> None:
        brokers = (facts.brokers or {}).values()
        _side_by_side(self._ask_node, brokers)
        with self._client() as client:
            self._ask_controllers(client, facts)
        _side_by_side(self._read_page, (*facts.controllers.values(), *brokers))

    def _client(self) -> BlockingClient:
        given = self._controllers or self._servers or ""
        return self._settings.client(given)

    # -- brokers ----------------------------------------------------------------------------------

    def _find_brokers(self, client: BlockingClient, facts: ClusterFacts) -> Address | None:
        """Find the brokers; return the one that named them."""
        problems: list[ClusterError] = []
        for address in client.present(client.bootstrap, self._limit_s(), problems):
            try:
                cluster = self._cluster(client, address, include_fenced_brokers=True)
            except ClusterError as error:
                problems.append(error)
                continue
            facts.cluster_id = cluster.cluster_id
            facts.brokers = {
                one.broker_id: NodeFacts(one.broker_id, (one.host, one.port), one.is_fenced)
                for one in sorted(cluster.brokers, key=lambda one: one.broker_id)
            }
            return address
        facts.broker_silence = "; ".join(map(str, problems))
        return None

    def _ask_for_partitions(self, first: Address, facts: ClusterFacts) -> None:
        """Look at all, in the time that is left; where a broker fails, the next one continues."""
        key, count, cursor = ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, None
        problems: list[ClusterError] = []
        with self._client() as client:
            for address in self._askable(client, first, facts, problems):
                try:
                    while self._left_ms() > 0:
                        page = self._ask(client, address, key, _PARTITIONS_VERSION, cursor=cursor)
                        for topic in page.topics:
                            count += len(topic.partitions)
                            seen = facts.topics.get(topic.name, 0)
                            facts.topics[topic.name] = seen + len(topic.partitions)
                            facts.offline += [
                                f"{topic.name}-{one.partition_index}"
                                for one in topic.partitions
                                if one.leader_id < 0
                            ]
                        if page.next_cursor is None:
                            facts.partition_count = count
                            return
                        cursor = codec.request(key).cls.Cursor(
                            topic_name=page.next_cursor.topic_name,
                            partition_index=page.next_cursor.partition_index,
                        )
                except ClusterError as error:
                    problems.append(error)
        if self._left_ms() > 1:  # it is no end of the time that all have together
            said = "; ".join(map(str, problems))
            facts.partition_silence = f"after {count} of them: {said}"
        else:
            facts.partition_silence = (
                f"there was time for {count} of them: raise default.api.timeout.ms in the file of "
                f"--command-config above {self._settings.api_timeout_ms}"
            )

    def _askable(
        self,
        client: BlockingClient,
        first: Address,
        facts: ClusterFacts,
        problems: list[ClusterError],
    ) -> Iterator[Address]:
        """The one that named the brokers, then those of them that are there."""
        yield first
        assert facts.brokers is not None
        others = [
            one.address
            for one in facts.brokers.values()
            if one.address is not None and one.address != first and not one.is_fenced
        ]
        yield from client.present(others, self._limit_s(), problems)

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
        _side_by_side(self._ask_node, facts.controllers.values())

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

    def _ask_node(self, node: NodeFacts) -> None:
        """Ask for its settings; see whether it is there."""
        if node.address is None:
            return
        with self._client() as client:
            try:
                node.settings = self._settings_of(client, node.address, node.id)
            except UnreachableError as error:
                node.silence = str(error)
            except ClusterError:
                return  # it answers, and does not show its settings

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

    def _read_page(self, node: NodeFacts) -> None:
        if node.address is None or node.silence:
            return
        address = page_address(node.settings.get(PAGE_KEY, ""), node.address)
        if address is not None:
            node.page = read_page(address, node.id, self._limit())
            if node.page.status:
                node.version, node.copy_lag = read_metrics(address, self._limit())

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


def _side_by_side(ask: Callable[[NodeFacts], None], nodes: Iterable[NodeFacts]) -> None:
    """Ask all nodes at the same time, as far as there are threads; return when all is known."""
    pool = ThreadPool("status", _AT_ONCE)
    try:
        for asking in [pool.submit(ask, node) for node in nodes]:
            asking.result()
    finally:
        pool.shutdown()


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
