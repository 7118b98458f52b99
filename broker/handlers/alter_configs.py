"""AlterConfigs (33): all settings of topics and brokers, resource by resource (KIP-133).

Settings that the request does not name are deleted. So two clients that each read, change and write
undo each other's changes; IncrementalAlterConfigs avoids that. Both APIs allow the same settings,
and these take effect at the same time.

Versions:

* 0: topics and brokers (KIP-133).
* 1: no new field; the client waits out a throttle, not the broker (KIP-219).
* 2: flexible (KIP-482).
"""

from typing import TYPE_CHECKING, Any, Final

from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.network.registry import RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.configs import Operation
from runtime.work import Pace, Steps, run_in_steps

if TYPE_CHECKING:
    from broker.handlers.parts import HandlerParts  # controllers, which serve this, do not load it

_Incremental: Final = message("IncrementalAlterConfigsRequest").cls
_Resource: Final = _Incremental.Resources
_Change: Final = _Resource.Configs


class AlterConfigsHandler(IncrementalAlterConfigsHandler):
    """Serves AlterConfigs on the active controller; `Forwarded` sends it there."""

    api_key = ApiKey.ALTER_CONFIGS
    versions = Versions(0, 2)

    response_cls = message("AlterConfigsResponse").cls
    replaces = True

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Replace the settings of each resource; each gets its own error."""
        return await super().handle(context, await run_in_steps(_as_changes(request)))


def _as_changes(request: Any) -> Steps[Any]:
    """Convert to IncrementalAlterConfigs: one SET for each setting in the request."""
    resources, pace = [], Pace()
    for one in request.resources:
        configs = [
            _Change(name=config.name, config_operation=Operation.SET, value=config.value)
            for config in one.configs
        ]
        resources.append(
            _Resource(
                resource_type=one.resource_type, resource_name=one.resource_name, configs=configs
            )
        )
        if pace.is_step_over(1 + len(configs)):
            yield
    return _Incremental(resources=resources, validate_only=request.validate_only)


def make(parts: "HandlerParts") -> AlterConfigsHandler:
    """Make the handler of AlterConfigs."""
    return AlterConfigsHandler(parts.node.submit, parts.live)
