"""Read the configuration a command was given, and say what is remarkable about it."""

import logging
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from rsm_plugins.loader import JAVA_COUNTERPARTS, no_such_module, why_no_class_name
from runtime.log_lines import apply_log_settings, log_to
from runtime.version import installed_version

log = logging.getLogger(__name__)


def parse_overrides(pairs: Iterable[str], *, option: str = "--override") -> dict[str, str]:
    """Read `key=value` texts; the last value of a repeated key wins.

    Raises:
        ConfigError: there is no `=`, or no key before it.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise ConfigError(option, pair, "must be key=value")
        found[key.strip()] = value.strip()
    return found


def load(
    source: Path | Mapping[str, str],
    overrides: Iterable[str],
    *,
    list_without_effect: bool = True,
    starts: bool = False,
    on_warning: Callable[[str], None] = lambda text: None,
) -> BrokerConfig:
    """Read and check a configuration; warnings go to the log, which takes its settings.

    Args:
        source: path of a properties file, or its entries.
        overrides: `key=value` each.
        starts: a node is started with it: the first line of its log says which version.
        list_without_effect: log one line with the keys that were set and change nothing here.
        on_warning: is told each warning, too.

    Raises:
        ConfigError: the file cannot be read, or a value or a combination is not allowed.
    """
    config, warnings = BrokerConfig.load(source, parse_overrides(overrides))
    apply_log_settings(config.tidemark_log_level, config.tidemark_log_format)
    if starts:
        roles, python = ",".join(config.process_roles), platform.python_version()
        told = installed_version(), config.node_id, roles, python
        log.info("Tidemark %s starts: node_id=%d roles=%s python=%s", *told)
    for warning in warnings:
        log.warning("configuration: %s", warning)
        on_warning(warning)
    if config.without_effect and list_without_effect:
        log.info("configuration: keys without effect here: %s", ", ".join(config.without_effect))
    check_storage_plugin(config)
    return config


def log_to_stdout() -> None:
    """Send the log to stdout, as Kafka does; stderr is for the one message of a failure."""
    log_to(sys.stdout)


_KEY: Final = "remote.log.storage.manager.class.name"


def check_storage_plugin(config: BrokerConfig) -> None:
    """Refuse a storage plugin whose module does not exist, before anything is written or started.

    The plugin itself is loaded in the tier process only; here its module is merely looked for, so
    that a misspelt name is one message instead of a broker that starts and falls again.

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
        raise ConfigError(_KEY, value, f"cannot import {module}: {no_such_module(module)}")
