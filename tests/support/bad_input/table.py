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
    producers,
    unread,
)

MODULES = (framing, unread, decoding, produce, producers, compression, fetch, groups, admin)
"""Imported for their cases."""

CASES = tuple(TABLE)

ROWS = tuple(f"N{number:03d}" for number in range(1, 122))

_HANDLERS = "tests/unit/broker/handlers"
_QUORUM = "tests/unit/metadata_topic"
_READS = "tests/unit/rlm/read/test_tier_service_reads.py"

ELSEWHERE = MappingProxyType(
    {
        "N044": f"{_HANDLERS}/test_handlers_produce.py"
        "::test_bad_input_too_few_replicas_in_sync_refuse_acks_all",
        "N062": f"{_HANDLERS}/test_handlers_fetch.py::test_bad_input_leader_epochs_are_compared",
        "N105": f"{_QUORUM}/test_bad_input_quorum.py"
        "::test_bad_input_about_something_else_is_refused_before_the_core",
        "N106": f"{_QUORUM}/test_kip595_elections.py"
        "::test_bad_input_a_candidate_outside_the_voters_is_judged_like_any_other",
        "N107": f"{_QUORUM}/test_raft_epochs.py"
        "::test_bad_input_an_absurd_epoch_of_a_request_moves_nothing",
        "N108": "tests/integration/test_controllers_bad_requests.py"
        "::test_nothing_of_a_bad_request_moves_a_quorum",
        "N109": f"{_QUORUM}/test_quorum_rows_on_files.py"
        "::test_bad_input_a_damaged_snapshot_gets_no_name_and_is_fetched_again",
        "N112": f"{_READS}::test_a_missing_object_gives_56",
        "N113": f"{_READS}::test_one_flipped_bit_gives_2_after_one_refetch_and_never_the_bytes",
        "N114": f"{_READS}::test_a_swapped_object_is_noticed_although_its_checksums_are_right",
        "N115": "tests/unit/rlmm/test_rlmm_foreign_records.py"
        "::test_an_update_whose_start_was_compacted_away_is_refused_and_no_segment_made_up",
        "N116": "rsm_plugins/contract/naming.py::test_custom_metadata_never_leads_out_of_the_store",
        "N117": "tests/unit/local_log/test_local_log_refused.py"
        "::test_an_incomplete_batch_is_cut_in_place",
        "N118": "tests/integration/test_damage_real_starts.py::test_damaged_files_of_partitions",
        "N119": "tests/integration/test_bad_input_start.py"
        "::test_bad_input_a_directory_of_another_cluster",
        "N120": "tests/unit/local_log/test_local_log_dirs.py"
        "::test_bad_input_N120_alien_files_are_left_alone",
        "N121": "tests/integration/test_disk_failures.py"
        "::test_bad_input_N121_full_disk_fails_alone_and_comes_back_after_a_restart",
    }
)
"""Rows whose place is not on a socket of a broker alone: one test that would miss the row."""

LATER = MappingProxyType(
    {
        "N064": "followers",
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
