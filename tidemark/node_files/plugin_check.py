"""Is the storage plugin there at all? Asked before anything is written or started.

The plugin itself is loaded in the tier process only; here its module is merely looked for, so that
a misspelt name is one message instead of a broker that starts and falls again.
"""

from importlib.util import find_spec
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from rsm_plugins.loader import JAVA_COUNTERPARTS, why_no_class_name

_KEY: Final = "remote.log.storage.manager.class.name"


def check_storage_plugin(config: BrokerConfig) -> None:
    """Refuse a storage plugin whose module does not exist.

    Raises:
        ConfigError: names the key, its value and the cause.
    """
    value = config.remote_log_storage_manager_class_name
    if not config.remote_log_storage_system_enable or not config.is_broker or value is None:
        return
    wrong = why_no_class_name(value)
    if wrong is not None:
        raise ConfigError(_KEY, value, wrong)
    module = JAVA_COUNTERPARTS.get(value, value).partition(":")[0]
    try:
        found = find_spec(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(_KEY, value, f"cannot import {module}: {error}") from None
    if found is None:
        raise ConfigError(_KEY, value, f"cannot import {module}: there is no such module")
