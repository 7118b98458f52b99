"""What clients may ask of a broker at any time, drawn by its rng."""

from local_log.manager.log_dirs import LogManager
from tests.support.damage.hosting_life import HostingLife

NAMES = ("tp1", "tp2", "tt1", "tt2", "tf1", "tf2")
REQUESTS = 60


async def ask_for_anything(life: HostingLife) -> None:
    """Requests one after the other, with some of the broker's steps in between."""
    for _ in range(REQUESTS):
        _ask(life)
        await life.pump(life.lives.below(8))
    await life.settle()


def _ask(life: HostingLife) -> None:
    below, draw = life.lives.below, life.lives.rng.random()
    name = NAMES[below(len(NAMES))]
    parts = list(life.replicas.partitions.values())
    part = parts[below(len(parts))] if parts else None
    if part is None or draw < 0.15:
        life.client(life.create(name, 1 + below(4)))
    elif draw < 0.22:
        life.client(life.delete(name))
    elif draw < 0.27:
        life.client(life.delete(name))
        life.client(life.create(name, 1 + below(4)))
    elif draw < 0.35:
        life.client(life.elect(part.topic_id, 1 if below(3) else -1))
    elif draw < 0.42:
        end = part.log.log_start_offset + below(part.high_watermark + 1 - part.log.log_start_offset)
        life.client(life.delete_records(part, end))
    elif draw < 0.50:
        life.client(life.flush(part))
    elif draw < 0.60:
        life.client(life.housekeeping(_TASKS[below(len(_TASKS))]))
    elif draw < 0.62:
        life.client(life.snapshot())
    elif draw < 0.65:
        life.ports.scheduler.advance(300)
    else:
        life.client(life.produce(part, 1 + below(3)))


_TASKS = (
    LogManager.checkpoint_recovery_points,
    LogManager.checkpoint_log_starts,
    LogManager.checkpoint_high_watermarks,
)
