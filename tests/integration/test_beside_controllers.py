"""Tests of clients and of tiering once more, on a broker that is nothing else beside a quorum.

Only here a whole life of tiered data goes through controllers of other processes: what is known
there of topics, settings and removals comes late, and by wire.
"""

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
from tests.integration.test_tiering_outages import (
    test_a_restart_reads_from_the_stored_position_or_else_the_whole_topic,
    test_an_unavailable_store_is_told_once_and_caught_up_with,
    test_the_tier_killed_at_random_while_it_deletes_leaves_nothing_behind,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.quorum.broker_beside import BrokerBesideControllers

pytestmark = pytest.mark.lasts(seconds=120)

where_kcat_is(test_kcat)

__all__ = [
    "test_a_deleted_name_is_free_at_once",
    "test_a_restart_reads_from_the_stored_position_or_else_the_whole_topic",
    "test_a_topic_deleted_right_before_a_kill_leaves_the_store_and_the_list",
    "test_admin_creates_describes_alters_and_deletes",
    "test_aiokafka",
    "test_an_unavailable_store_is_told_once_and_caught_up_with",
    "test_kafka_python",
    "test_kcat",
    "test_the_tier_copies_and_reads_the_new_partitions_of_its_topic",
    "test_the_tier_killed_at_random_while_it_deletes_leaves_nothing_behind",
    "test_there_is_no_false_finding_while_the_cluster_works",
    "test_wrong_topics_are_refused_with_kafkas_codes",
]


@pytest.fixture(scope="module")
def broker_kind() -> type[BrokerProcess]:
    return BrokerBesideControllers
