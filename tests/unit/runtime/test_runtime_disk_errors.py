"""Errors that are said anew keep the one that they are of."""

import errno

from runtime.disk_errors import half_done, is_exhausted


def test_the_error_of_a_half_done_step_names_what_the_disk_said_as_its_cause() -> None:
    said = OSError(errno.ENOMEM, "Cannot allocate memory", "/data/00.log")
    made = half_done(said, "a truncation ended before its end")
    assert made.__cause__ is said
    assert "/data/00.log" in str(made)
    assert not is_exhausted(made)
