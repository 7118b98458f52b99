"""Read the configuration a command was given, and say what is remarkable about it."""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from tidemark.node_files.plugin_check import check_storage_plugin

log = logging.getLogger(__name__)

LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


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
    on_warning: Callable[[str], None] = lambda text: None,
) -> BrokerConfig:
    """Read and check a configuration; warnings go to the log.

    Args:
        source: path of a properties file, or its entries.
        overrides: `key=value` each.
        list_without_effect: log one line with the keys that were set and change nothing here.
        on_warning: is told each warning, too.

    Raises:
        ConfigError: the file cannot be read, or a value or a combination is not allowed.
    """
    config, warnings = BrokerConfig.load(source, parse_overrides(overrides))
    for warning in warnings:
        log.warning("configuration: %s", warning)
        on_warning(warning)
    if config.without_effect and list_without_effect:
        log.info("configuration: keys without effect here: %s", ", ".join(config.without_effect))
    check_storage_plugin(config)
    return config


def log_to_stdout() -> None:
    """Send the log to stdout, as Kafka does; stderr is for the one message of a failure."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=LOG_FORMAT)
