"""What a tier answers before it is configured, and that it is configured once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from rlm.config import TierConfig
from rlm.link.endpoint import LinkFailureError
from rlm.link.messages import Ack, Configure, Configured, Connect, Heartbeat
from rlm.plugins import Plugins
from rlm.workers import EXPIRATION_POOL
from tests.support.tier.pair import Pair


class Unconfigured(Pair):
    """A pair whose broker has sent no `Configure` so far."""

    refusals = 0
    plugins_made = 0

    def configure(self) -> None:
        pass

    def _plugins(self, config: TierConfig, calls: object) -> Plugins:
        if self.refusals:
            self.refusals -= 1
            raise ValueError("dir: is missing")
        self.plugins_made += 1
        return super()._plugins(config, calls)


@pytest.fixture
def pair(tmp_path: Path) -> Unconfigured:
    return Unconfigured(tmp_path)


def refused(ask: Callable[[], object]) -> int:
    with pytest.raises(LinkFailureError) as failure:
        ask()
    return failure.value.code


def test_a_tier_that_is_not_configured_only_says_that_it_lives(pair: Unconfigured) -> None:
    assert pair.ask(Heartbeat()).message == Ack()
    assert refused(lambda: pair.ask(Connect())) == ErrorCode.INVALID_REQUEST
    pair.ask(Configure(pair.config))
    assert pair.ask(Connect()).message == Ack()


def test_a_tier_is_configured_once(pair: Unconfigured) -> None:
    pair.ask(Configure(pair.config))
    made = pair.tier
    assert refused(lambda: pair.ask(Configure(pair.config))) == ErrorCode.INVALID_REQUEST
    assert (pair.tier, pair.plugins_made) == (made, 1)


def test_a_tier_is_configured_once_also_while_its_plugins_are_made(pair: Unconfigured) -> None:
    pair.workers.held.add(EXPIRATION_POOL)
    first = pair.broker.ask(Configure(pair.config))
    assert refused(lambda: pair.ask(Configure(pair.config))) == ErrorCode.INVALID_REQUEST
    pair.workers.held.clear()
    pair.pump()
    assert isinstance(first.result(0).message, Configured)
    assert pair.plugins_made == 1


def test_a_tier_whose_settings_were_refused_can_be_configured_again(pair: Unconfigured) -> None:
    pair.refusals = 1
    assert refused(lambda: pair.ask(Configure(pair.config))) == -1
    assert isinstance(pair.ask(Configure(pair.config)).message, Configured)
