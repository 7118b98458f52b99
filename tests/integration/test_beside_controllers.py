"""Tests of clients and of tiering once more, on a broker that is nothing else beside a quorum.

Only here a whole life of tiered data goes through controllers of other processes: what is known
there of topics, settings and removals comes late, and by wire.
"""

import asyncio
from collections.abc import Callable, Iterator

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
from tests.integration.test_growing_topics import (
    test_the_tier_copies_and_reads_the_new_partitions_of_its_topic,
)
from tests.integration.test_remote_tools import (
    test_there_is_no_false_finding_while_the_cluster_works,
)
from tests.integration.test_removed_topics import (
    test_a_topic_deleted_right_before_a_kill_leaves_the_store_and_the_list,
)
from tests.integration.test_tiering_end_to_end import (
    test_a_deleted_topic_leaves_no_metrics,
    test_a_deleted_topic_leaves_nothing_in_the_store_and_its_name_is_free,
    test_a_killed_tier_comes_back_by_itself,
    test_deleted_records_leave_the_store,
    test_old_records_come_back_from_the_remote_tier,
    test_records_stay_readable_after_kill_and_restart,
    test_switching_it_on_later_copies_what_is_there,
    test_the_guarded_topic_refuses_clients,
    test_the_store_away_stops_neither_producing_nor_local_reading,
)
from tests.integration.test_tiering_outages import (
    test_a_restart_goes_on_at_the_stored_position_and_without_it_reads_all_again,
    test_an_unavailable_store_is_told_once_and_caught_up_with,
    test_the_tier_killed_at_random_while_it_deletes_leaves_nothing_behind,
)
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

where_kcat_is(test_kcat)

__all__ = [
    "test_a_deleted_name_is_free_at_once",
    "test_a_deleted_topic_leaves_no_metrics",
    "test_a_deleted_topic_leaves_nothing_in_the_store_and_its_name_is_free",
    "test_a_killed_tier_comes_back_by_itself",
    "test_a_restart_goes_on_at_the_stored_position_and_without_it_reads_all_again",
    "test_a_topic_deleted_right_before_a_kill_leaves_the_store_and_the_list",
    "test_admin_creates_describes_alters_and_deletes",
    "test_aiokafka",
    "test_an_unavailable_store_is_told_once_and_caught_up_with",
    "test_deleted_records_leave_the_store",
    "test_kafka_python",
    "test_kcat",
    "test_old_records_come_back_from_the_remote_tier",
    "test_records_stay_readable_after_kill_and_restart",
    "test_switching_it_on_later_copies_what_is_there",
    "test_the_guarded_topic_refuses_clients",
    "test_the_store_away_stops_neither_producing_nor_local_reading",
    "test_the_tier_copies_and_reads_the_new_partitions_of_its_topic",
    "test_the_tier_killed_at_random_while_it_deletes_leaves_nothing_behind",
    "test_there_is_no_false_finding_while_the_cluster_works",
    "test_wrong_topics_are_refused_with_kafkas_codes",
]


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Quorum]]:
    """Three of them for each broker, that know of tiers."""
    started: list[Quorum] = []

    def start() -> Quorum:
        settings = {"remote.log.storage.system.enable": "true"}
        plan = Plan(TidemarkController, False, has_links=False, settings=settings)
        started.append(Quorum(tmp_path_factory.mktemp("controllers"), plan))
        asyncio.run(started[-1].__aenter__())
        return started[-1]

    yield start
    for one in started:
        asyncio.run(one.__aexit__())
