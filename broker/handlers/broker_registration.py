"""BrokerRegistration (62): registers a new incarnation of a broker; controllers serve it.

Versions:

* 0: KIP-631; flexible from the start.
* 1: whether a broker migrates from ZooKeeper (KIP-866); such a broker is refused, as in Kafka 4.
* 2: the broker's log directories (KIP-858).
* 3: the epoch of its incarnation before, if that ended cleanly (KIP-966).
* 4: no new field; features whose lowest level is 0 are named (KAFKA-17011).

Tagged fields of Tidemark:

* The broker serves replicas only once their directories are in the metadata.
* The number of files that it may still open.
* Replicas that it found in other directories than the metadata have.
* The remote store of its tier.
"""

from typing import Any, Final

from broker.handlers.errors_out import code_of
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.directories import FoundReplicas, ReplicaId
from metadata_topic.image.model import Endpoint
from metadata_topic.image.replay_nodes import remote_store
from metadata_topic.quorum.active.broker_control import BrokerControl
from metadata_topic.quorum.active.submit import outcome_of

_Response: Final = response(ApiKey.BROKER_REGISTRATION).cls


class BrokerRegistrationHandler(DecodedHandler):
    """Answers BrokerRegistration on a controllers' listener."""

    api_key = ApiKey.BROKER_REGISTRATION
    versions = Versions(0, 4)

    def __init__(self, brokers: BrokerControl) -> None:
        self._brokers = brokers

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Register the broker, fenced; answers with its broker epoch."""
        if request.is_migrating_zk_broker:
            return _Response(error_code=int(ErrorCode.BROKER_ID_NOT_REGISTERED))
        registration = _registration(request)
        try:
            epoch: int = await outcome_of(
                lambda done: self._brokers.register(
                    request.cluster_id,
                    registration,
                    done,
                    found=_found(request),
                    free_descriptors=request.free_descriptors,
                )
            )
        except Exception as error:  # noqa: BLE001  (reported as a code)
            return _Response(error_code=int(code_of(error, "register a broker")))
        return _Response(broker_epoch=epoch)


def _found(request: Any) -> FoundReplicas:
    usable: dict[ReplicaId, bytes] = {}
    refused: dict[ReplicaId, bytes] = {}
    for one in request.replicas:
        where = refused if one.refused else usable
        where[ReplicaId(one.topic_id, one.partition)] = one.directory_id
    return FoundReplicas(usable, refused, is_missing_some=bool(request.is_missing_directory))


def _registration(request: Any) -> Registration:
    return Registration(
        request.broker_id,
        request.incarnation_id,
        tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features},
        request.rack,
        tuple(request.log_dirs),
        keeps_directories=bool(request.keeps_directories),
        remote_store=remote_store(request),
        previous_epoch=request.previous_broker_epoch,
    )
