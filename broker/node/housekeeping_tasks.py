"""Which recurring tasks a broker has, and how often each runs."""

from broker.config.broker_config import BrokerConfig
from broker.node.housekeeping import Task
from local_log.manager.log_dirs import LogManager
from runtime.clock import Clock


def housekeeping_tasks(config: BrokerConfig, logs: LogManager, clock: Clock) -> list[Task]:
    """The tasks of one broker.

    Retention changes which segments there are, so it runs where that state is owned, on the loop;
    it only renames files. Checkpoints wait for fsync, so they run on `log-background`.
    """
    return [
        Task(
            "retention",
            config.log_retention_check_interval_ms,
            lambda: logs.run_retention(clock.wall_ms()),
        ),
        Task("flush", config.log_flush_scheduler_interval_ms, logs.flush_due),
        Task(
            "recovery point checkpoint",
            config.log_flush_offset_checkpoint_interval_ms,
            logs.checkpoint_recovery_points,
            in_pool=True,
        ),
        Task(
            "log start checkpoint",
            config.log_flush_start_offset_checkpoint_interval_ms,
            logs.checkpoint_log_starts,
            in_pool=True,
        ),
        Task(
            "high watermark checkpoint",
            config.replica_high_watermark_checkpoint_interval_ms,
            logs.checkpoint_high_watermarks,
            in_pool=True,
        ),
        Task(
            "producer expiry",
            config.producer_id_expiration_check_interval_ms,
            lambda: logs.expire_producers(clock.wall_ms(), config.producer_id_expiration_ms),
        ),
    ]
