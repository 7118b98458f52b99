"""Lines of the log: time with zone, process, level and logger, as text and as JSON."""

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.log_lines import (
    FILE_BYTES_MAX,
    QuietStart,
    also_logged_to,
    apply_log_settings,
    log_to,
    parse_level,
)


@contextmanager
def bare_root() -> Iterator[None]:
    """A root logger without handlers, put back as it was."""
    root, name = logging.getLogger(), logging.getLogger("of")
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        name.setLevel(logging.NOTSET)


def lines(process: str, levels: tuple[str, ...], form: str) -> list[str]:
    out = io.StringIO()
    with bare_root():
        log_to(out, process=process)
        apply_log_settings(levels, form)
        logging.getLogger("other").info("not told of at WARN")
        log = logging.getLogger("of.the.test")
        log.debug("copied: size=%d", 3)
        try:
            io.StringIO().fileno()
        except OSError:
            log.exception("it fails")
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("process", "shown"), [("", ""), ("tier", "tier: ")])
def test_a_line_of_text_is_kafkas_with_a_zone(process: str, shown: str) -> None:
    first, second, *stack = lines(process, ("WARN", "of=debug"), "text")
    at = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}[+-]\d\d:\d\d\]"
    assert re.fullmatch(rf"{at} DEBUG {shown}copied: size=3 \(of\.the\.test\)", first)
    assert re.fullmatch(rf"{at} ERROR {shown}it fails \(of\.the\.test\)", second)
    assert (stack[0], stack[-1]) == (
        "Traceback (most recent call last):",
        "io.UnsupportedOperation: fileno",
    )


def test_a_line_of_json_is_one_object_with_its_stack() -> None:
    first, second = (json.loads(one) for one in lines("tier", ("WARN", "of=DEBUG"), "json"))
    at = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(at, first.pop("time"))
    assert first == {
        "level": "DEBUG",
        "logger": "of.the.test",
        "process": "tier",
        "message": "copied: size=3",
    }
    assert second["exception"].endswith("io.UnsupportedOperation: fileno")


def test_a_log_that_goes_somewhere_is_left_as_it_is() -> None:
    first, second = io.StringIO(), io.StringIO()
    with bare_root():
        log_to(first)
        log_to(second)
        logging.getLogger("of.the.test").warning("once")
    assert "once" in first.getvalue()
    assert not second.getvalue()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INFO", ("", logging.INFO)),
        (" warn ", ("", logging.WARNING)),
        ("rlm.maintenance = Debug", ("rlm.maintenance", logging.DEBUG)),
    ],
)
def test_a_level_is_read(text: str, found: tuple[str, int]) -> None:
    assert parse_level(text) == found


@pytest.mark.parametrize("text", ["", "TRACE", "rlm=", "=INFO", "rlm=loud", "rlm"])
def test_bad_input_another_level_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"PACKAGE=LEVEL, .* DEBUG, INFO, WARN"):
        parse_level(text)


def test_a_file_gets_the_lines_too_and_is_begun_anew_where_it_is_full(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_text("x" * (FILE_BYTES_MAX - 10))
    with bare_root():
        log_to(io.StringIO())
        with also_logged_to(file):
            logging.getLogger("of.the.test").warning("disk of %s is full", "\udc80")
        logging.getLogger("of.the.test").warning("not in the file")
    assert file.read_text().endswith("WARNING disk of \\udc80 is full (of.the.test)\n")
    assert file.stat().st_size < 200
    assert (tmp_path / "server.log.1").stat().st_size == FILE_BYTES_MAX - 10


def test_a_log_that_is_not_ours_keeps_its_levels() -> None:
    """As in a test suite, or a program that embeds a node."""
    with bare_root():
        logging.getLogger().addHandler(logging.NullHandler())
        logging.getLogger().setLevel(logging.ERROR)
        apply_log_settings(("DEBUG",), "json")
        assert logging.getLogger().level == logging.ERROR


def test_a_start_that_fails_leaves_no_filter_at_the_handlers() -> None:
    """The handlers outlive the command, as in a test suite: INFO lines would be lost for good."""
    root = logging.getLogger()
    before = [list(handler.filters) for handler in root.handlers]
    with pytest.raises(OSError, match="no disk"), QuietStart(("metadata_topic",), ()):
        raise OSError("no disk")
    assert root.handlers
    assert [list(handler.filters) for handler in root.handlers] == before
