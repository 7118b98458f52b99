"""The log cleaner as this broker's settings want it."""

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.observe.cleaner_metrics import register_cleaner_metrics
from local_log.cleaner.cleaner import LogCleaner
from local_log.cleaner.log_pass import CleanerSettings
from local_log.cleaner.process import ProcessWorker
from local_log.manager.log_dirs import LogManager
from runtime.ports import Ports


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """What the cleaner obeys."""
    load = config.log_cleaner_io_buffer_load_factor
    rate = config.log_cleaner_io_max_bytes_per_second
    return CleanerSettings(
        is_enabled=config.log_cleaner_enable and config.log_cleaner_threads > 0,
        backoff_ms=config.log_cleaner_backoff_ms,
        map_bytes=max(int(config.log_cleaner_dedupe_buffer_size * load), 4096),
        buffer_bytes=max(config.log_cleaner_io_buffer_size, 4096),
        bytes_per_second=rate if rate < 1e18 else 0.0,
    )


def make_cleaner(current: Callable[[], BrokerConfig], logs: LogManager, ports: Ports) -> LogCleaner:
    """Make the cleaner of a broker; it does nothing before its `start`.

    Args:
        current: the settings as they are now.
        logs: of the broker.
        ports: of the process.
    """
    worker = ProcessWorker()
    cleaner = LogCleaner(logs, lambda: cleaner_settings(current()), ports, worker)
    register_cleaner_metrics(ports.metrics, cleaner, logs, ports.clock)
    return cleaner
