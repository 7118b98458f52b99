"""Effect of records about brokers and controllers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.model import (
    BrokenMetadataLogError,
    BrokerImage,
    ControllerImage,
    Endpoint,
    RemoteStore,
)


def _broker_of(delta: MetadataDelta, broker_id: int, epoch: int, what: str) -> BrokerImage:
    broker = delta.broker(broker_id)
    if broker is None:
        raise BrokenMetadataLogError(f"{what} for broker {broker_id}, which is not registered")
    if broker.epoch != epoch:
        raise BrokenMetadataLogError(
            f"{what} for broker {broker_id} epoch {epoch}, registered is epoch {broker.epoch}"
        )
    return broker


def _endpoints(value: Any) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in value.end_points)


def _features(value: Any) -> dict[str, tuple[int, int]]:
    return {f.name: (f.min_supported_version, f.max_supported_version) for f in value.features}


def remote_store(value: Any) -> RemoteStore | None:
    """Remote store named in a broker's registration request or record; None without a tier."""
    if value.remote_store_class is None:
        return None
    return RemoteStore(value.remote_store_class, bytes(value.remote_store_place or b""))


def _register_broker(delta: MetadataDelta, value: Any) -> None:
    cordoned = value.cordoned_log_dirs
    delta.put_broker(
        BrokerImage(
            id=value.broker_id,
            epoch=value.broker_epoch,
            incarnation_id=value.incarnation_id,
            endpoints=_endpoints(value),
            features=_features(value),
            rack=value.rack,
            fenced=value.fenced,
            in_controlled_shutdown=value.in_controlled_shutdown,
            log_dirs=tuple(value.log_dirs),
            cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
            directories_assigned_from=value.directories_assigned_from,
            absent_directories=tuple((d.id, d.last_incarnation) for d in value.absent_directories),
            remote_store=remote_store(value),
        )
    )


def _unregister_broker(delta: MetadataDelta, value: Any) -> None:
    _broker_of(delta, value.broker_id, value.broker_epoch, "UnregisterBrokerRecord")
    delta.remove_broker(value.broker_id)


def _fence_broker(delta: MetadataDelta, value: Any) -> None:
    broker = _broker_of(delta, value.id, value.epoch, "FenceBrokerRecord")
    delta.put_broker(replace(broker, fenced=True))


def _unfence_broker(delta: MetadataDelta, value: Any) -> None:
    broker = _broker_of(delta, value.id, value.epoch, "UnfenceBrokerRecord")
    delta.put_broker(replace(broker, fenced=False))


def _broker_change(delta: MetadataDelta, value: Any) -> None:
    what = "BrokerRegistrationChangeRecord"
    broker = _broker_of(delta, value.broker_id, value.broker_epoch, what)
    cordoned = value.cordoned_log_dirs
    delta.put_broker(
        replace(
            broker,
            fenced=broker.fenced if value.fenced == 0 else value.fenced > 0,
            in_controlled_shutdown=(
                broker.in_controlled_shutdown or value.in_controlled_shutdown > 0
            ),
            log_dirs=tuple(value.log_dirs) or broker.log_dirs,
            cordoned_log_dirs=(broker.cordoned_log_dirs if cordoned is None else tuple(cordoned)),
        )
    )


def _register_controller(delta: MetadataDelta, value: Any) -> None:
    delta.put_controller(
        ControllerImage(
            id=value.controller_id,
            incarnation_id=value.incarnation_id,
            endpoints=_endpoints(value),
            features=_features(value),
            zk_migration_ready=value.zk_migration_ready,
        )
    )


HANDLERS: Final[dict[str, Callable[[MetadataDelta, Any], None]]] = {
    "RegisterBrokerRecord": _register_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "FenceBrokerRecord": _fence_broker,
    "UnfenceBrokerRecord": _unfence_broker,
    "BrokerRegistrationChangeRecord": _broker_change,
    "RegisterControllerRecord": _register_controller,
}
