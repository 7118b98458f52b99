"""All requests of the comparison, in the order in which both sides get them."""

from tests.support.differential.configs import (
    alter_configs_cases,
    describe_configs_cases,
    replace_configs_cases,
)
from tests.support.differential.reads import (
    acl_cases,
    cluster_cases,
    config_resources_cases,
    delete_records_cases,
    describe_partitions_cases,
    epoch_end_cases,
    init_producer_id_cases,
    list_offsets_cases,
    log_dirs_cases,
    metadata_cases,
    unregister_cases,
)
from tests.support.differential.records import fetch_cases, produce_cases
from tests.support.differential.topics import (
    create_partitions_cases,
    create_topics_cases,
    delete_topics_cases,
)

READING = (
    metadata_cases,
    list_offsets_cases,
    epoch_end_cases,
    fetch_cases,
    cluster_cases,
    describe_partitions_cases,
    describe_configs_cases,
    config_resources_cases,
    log_dirs_cases,
    unregister_cases,
    init_producer_id_cases,
    acl_cases,
)
WRITING = (
    create_topics_cases,
    create_partitions_cases,
    alter_configs_cases,
    replace_configs_cases,
    produce_cases,
    delete_records_cases,
    delete_topics_cases,
)
