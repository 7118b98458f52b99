"""Epoch chains as tuples: the production cache changes them, each change made once."""

from functools import cache

from kafka_protocol.types import EpochEntry
from local_log.leader_epoch_cache import LeaderEpochCache

Log = tuple[int, ...]
"""The leader epoch of each record: with the offset, its identity."""
Chain = tuple[tuple[int, int], ...]


@cache
def chain_of(log: Log) -> Chain:
    """As recovery rebuilds it from the batches."""
    return tuple(
        (epoch, offset)
        for offset, epoch in enumerate(log)
        if offset == 0 or log[offset - 1] != epoch
    )


def _cache(chain: Chain) -> LeaderEpochCache:
    return LeaderEpochCache([EpochEntry(epoch, start) for epoch, start in chain])


def _tuple(held: LeaderEpochCache) -> Chain:
    return tuple((one.epoch, one.start_offset) for one in held.entries())


@cache
def assigned(chain: Chain, epoch: int, offset: int) -> Chain:
    held = _cache(chain)
    held.assign(epoch, offset)
    return _tuple(held)


@cache
def cut(chain: Chain, end: int) -> Chain:
    held = _cache(chain)
    held.truncate_from_end(end)
    return _tuple(held)


@cache
def end_offset_for(chain: Chain, epoch: int, log_end: int) -> tuple[int, int] | None:
    return _cache(chain).end_offset_for(epoch, log_end)


@cache
def epochs_by(chain: Chain, end: int) -> Log:
    """The epoch of each offset as the chain has it."""
    held = _cache(chain)
    return tuple(held.epoch_for(offset) or 0 for offset in range(end))
