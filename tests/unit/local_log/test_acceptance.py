"""What a person accepted is read back as it was written, or not at all."""

from dataclasses import replace

import pytest

from kafka_protocol.types import EpochEntry
from local_log.recovery.acceptance import Accepted, Adopted, dump, parse
from local_log.refusal import Fault, FaultKind, RefusalFacts


def test_accepted_file_reads_back_and_no_changed_byte_is_believed():
    fault = Fault(FaultKind.HOLE, f"{7:020d}.log", 0, 5, 7)
    facts = RefusalFacts((fault,), None, 9, None, 8)
    accepted = Accepted(facts, ((1, 3), (5, 7)), is_sparse=True)
    assert parse(dump(accepted)) == accepted
    accepted = replace(accepted, adopted=Adopted(None, 9, (EpochEntry(1, 0),)), adopted_epoch=3)
    data = dump(accepted)
    assert parse(data) == accepted
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            with pytest.raises(ValueError):
                parse(bytes(changed))
    for length in range(len(data)):
        with pytest.raises(ValueError):
            parse(data[:length])
