"""Tests of clients and of tiering once more, on a broker that is nothing else beside a quorum.

Only here a whole life of tiered data goes through controllers of other processes: what is known
there of topics, settings and removals comes late, and by wire.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests.integration.test_clients_aiokafka import test_records_come_back_as_sent as test_aiokafka
from tests.integration.test_clients_confluent_kafka import (
    test_a_deleted_name_is_free_at_once,
    test_admin_creates_describes_alters_and_deletes,
    test_wrong_topics_are_refused_with_kafkas_codes,
)
from tests.integration.test_clients_kafka_python import (
    test_admin_creates_and_deletes as test_kafka_python,
)
from tests.integration.test_clients_kcat import pytestmark as where_kcat_is
from tests.integration.test_clients_kcat import test_lines_come_back_as_sent as test_kcat
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

where_kcat_is(test_kcat)

__all__ = [
    "test_a_deleted_name_is_free_at_once",
    "test_admin_creates_describes_alters_and_deletes",
    "test_aiokafka",
    "test_kafka_python",
    "test_kcat",
    "test_wrong_topics_are_refused_with_kafkas_codes",
]


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """Three of them, that know of tiers."""
    settings = {"remote.log.storage.system.enable": "true"}
    plan = Plan(TidemarkController, False, has_links=False, settings=settings)
    quorum = Quorum(tmp_path_factory.mktemp("controllers"), plan)
    asyncio.run(quorum.__aenter__())
    try:
        yield quorum
    finally:
        asyncio.run(quorum.__aexit__())
