"""All rows of the table of bad inputs: cases here, tests elsewhere, and what is not served yet."""

from types import MappingProxyType

from tests.support.bad_input.case import TABLE
from tests.support.bad_input.rows import (
    admin,
    compression,
    decoding,
    fetch,
    framing,
    groups,
    produce,
    unread,
)

MODULES = (framing, unread, decoding, produce, compression, fetch, groups, admin)
"""Imported for their cases."""

CASES = tuple(TABLE)

ROWS = tuple(f"N{number:03d}" for number in range(1, 122))

_HANDLERS = "tests/unit/broker/handlers"
_QUORUM = "tests/unit/metadata_topic"
_CODEC = "tests/unit/kafka_protocol/test_codec_bad_inputs.py"
_RECORDS = "tests/unit/kafka_protocol/test_records_bad_inputs.py"
_APPEND = "tests/unit/local_log/test_local_log_append.py"
_PRODUCERS = "tests/unit/local_log/test_local_log_producers.py"
_GROUPS = "tests/unit/broker/coordinator/group"
_CREATION = "tests/unit/metadata_topic/test_controller_create_topics.py"
_READS = "tests/unit/rlm/read/test_tier_service_reads.py"

ELSEWHERE = MappingProxyType(
    {
        "N014": f"{_CODEC}::test_any_negative_length_of_a_client_id_is_null",
        "N019": f"{_CODEC}::test_a_negative_count_is_null_where_null_may_be",
        "N020": f"{_CODEC}::test_a_varint_past_five_bytes_is_malformed",
        "N022": f"{_CODEC}::test_null_where_null_may_not_be_is_malformed",
        "N023": f"{_CODEC}::test_of_two_equal_tags_the_last_wins",
        "N024": f"{_CODEC}::test_a_hundred_thousand_unknown_tags_are_skipped",
        "N028": f"{_APPEND}::test_bad_input",
        "N030": f"{_APPEND}::test_bad_input",
        "N031": f"{_APPEND}::test_bad_input",
        "N035": f"{_RECORDS}::test_header_names_are_never_null_and_values_may_be",
        "N036": f"{_RECORDS}::test_any_negative_key_size_is_a_null_key",
        "N037": f"{_APPEND}::test_bad_input",
        "N038": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_transactional_batches_refuse_the_whole_request",
        "N040": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_keyless_records_are_named_by_index",
        "N041": f"{_APPEND}::test_timestamp_before_the_limit_is_found_inside_the_batch",
        "N043": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_unknown_acks_refuse_every_partition",
        "N045": f"{_HANDLERS}/test_handlers_produce.py::test_bad_input_internal_topics_are_refused",
        "N046": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_the_metadata_log_cannot_be_written",
        "N047": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_no_client_id_writes_the_tiers_metadata",
        "N048": f"{_PRODUCERS}::test_bad_input_N048_gap_in_sequence_is_refused",
        "N049": f"{_PRODUCERS}::test_bad_input_N049_each_of_the_last_five_batches_may_be_repeated",
        "N050": f"{_PRODUCERS}::test_bad_input_N050_older_epoch_is_refused",
        "N051": f"{_PRODUCERS}"
        "::test_bad_input_N051_unknown_producer_begins_anywhere_known_one_at_zero",
        "N053": f"{_RECORDS}::test_a_zstd_bomb_is_stopped_at_the_cap",
        "N054": f"{_RECORDS}::test_a_snappy_block_that_claims_two_gib_is_invalid",
        "N055": f"{_RECORDS}::test_a_cut_stream_is_invalid",
        "N056": f"{_APPEND}::test_bad_input",
        "N057": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_zstd_is_too_new_for_old_versions",
        "N058": f"{_HANDLERS}/test_handlers_fetch.py::test_what_is_wrong_is_told_per_partition",
        "N060": f"{_HANDLERS}/test_handlers_fetch.py::test_bad_input_an_invented_session",
        "N061": "tests/unit/broker/replica/test_replica_fetch_session.py"
        "::test_the_cache_keeps_its_bound",
        "N063": f"{_HANDLERS}/test_handlers_fetch.py"
        "::test_bad_input_a_broker_without_a_replica_is_refused",
        "N064": "tests/unit/broker/replica/test_replica_leading.py"
        "::test_bad_input_an_older_life_does_not_speak_for_a_later_one",
        "N066": f"{_HANDLERS}/test_handlers_offsets.py"
        "::test_bad_input_other_negative_timestamps_are_refused",
        "N067": f"{_GROUPS}/test_groups_joining.py"
        "::test_session_timeout_outside_of_the_limits_is_refused",
        "N068": f"{_GROUPS}/test_groups_joining.py::test_join_without_protocols_is_inconsistent",
        "N069": f"{_GROUPS}/test_groups_joining.py"
        "::test_one_member_too_many_is_refused_and_the_others_keep_their_places",
        "N071": f"{_GROUPS}/test_groups_joining.py::test_member_id_that_nobody_gave_out_is_unknown",
        "N072": f"{_GROUPS}/test_groups_static_members.py::test_whoever_uses_the_old_id_is_fenced",
        "N075": f"{_GROUPS}/test_groups_offsets.py::test_group_with_members_is_not_deleted",
        "N082": f"{_CREATION}::test_names_that_cannot_be_directories_are_refused",
        "N085": f"{_CREATION}::test_names_that_cannot_be_directories_are_refused",
        "N086": f"{_CREATION}"
        "::test_a_name_equal_in_metrics_is_refused_and_the_other_topic_is_named",
        "N087": f"{_CREATION}::test_a_count_of_partitions_that_is_none_is_refused",
        "N088": f"{_CREATION}::test_a_billion_partitions_are_refused_before_anything_is_built",
        "N089": f"{_CREATION}::test_a_replication_factor_that_is_none_is_refused",
        "N090": f"{_CREATION}::test_an_assignment_that_cannot_be_is_refused",
        "N093": f"{_HANDLERS}/test_handlers_unserved.py"
        "::test_acls_are_answered_as_by_kafka_without_an_authorizer",
        "N094": f"{_HANDLERS}/test_handlers_offsets.py::test_bad_input_guarded_topics",
        "N044": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_too_few_replicas_in_sync_refuse_acks_all",
        "N062": f"{_HANDLERS}/test_handlers_fetch.py::test_bad_input_leader_epochs_are_compared",
        "N105": f"{_QUORUM}/test_bad_input_quorum.py"
        "::test_bad_input_about_something_else_is_refused_before_the_core",
        "N106": f"{_QUORUM}/test_kip595_elections.py"
        "::test_bad_input_a_candidate_outside_the_voters_is_validated_equally",
        "N107": f"{_QUORUM}/test_raft_epochs.py"
        "::test_bad_input_an_absurd_epoch_of_a_request_moves_nothing",
        "N108": f"{_QUORUM}/test_kip630_snapshots.py"
        "::test_k630_24_what_is_not_there_has_its_own_code",
        "N109": f"{_QUORUM}/test_quorum_rows_on_files.py"
        "::test_bad_input_a_damaged_snapshot_gets_no_name_and_is_fetched_again",
        "N112": f"{_READS}::test_a_missing_object_gives_56",
        "N113": f"{_READS}::test_one_flipped_bit_gives_2_after_one_refetch_and_never_the_bytes",
        "N114": f"{_READS}::test_a_swapped_object_is_noticed_although_its_checksums_are_right",
        "N115": "tests/unit/rlmm/test_rlmm_foreign_records.py"
        "::test_an_update_without_its_start_is_refused_and_invents_no_segment",
        "N116": "rsm_plugins/contract/naming.py::test_custom_metadata_never_leads_out_of_the_store",
        "N117": "tests/unit/local_log/test_local_log_refused.py"
        "::test_an_incomplete_batch_is_cut_in_place",
        "N118": "tests/integration/test_damage_real_starts.py::test_damaged_files_of_partitions",
        "N119": "tests/integration/test_start_stop_broker.py"
        "::test_the_directory_of_another_cluster_is_refused_with_both_ids",
        "N120": "tests/unit/local_log/test_local_log_dirs.py"
        "::test_bad_input_N120_alien_files_are_left_alone",
        "N121": "tests/integration/test_disk_failures.py"
        "::test_bad_input_N121_full_disk_fails_alone_and_returns_after_a_restart",
    }
)
"""Rows whose place is not on a socket of a broker alone: one test that would miss the row."""

LATER = MappingProxyType(
    {
        "N074": "ACLs",
        "N077": "transactions",
        "N097": "SASL",
        "N098": "SASL",
        "N100": "SASL",
        "N101": "TLS",
        "N102": "TLS",
        "N103": "TLS",
        "N104": "SASL",
        "N111": "quotas",
    }
)
"""Rows about what is not served yet, by what they wait for; no request for it is answered."""
