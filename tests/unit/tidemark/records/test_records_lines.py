import pytest

from tidemark.records.lines import LineError, LineForm, parse_header, unescaped


@pytest.mark.parametrize(
    ("form", "line", "record"),
    [
        (LineForm(), b"a:b", (None, b"a:b")),
        (LineForm(), b"", (None, b"")),
        (LineForm(), b"\xff\r", (None, b"\xff\r")),
        (LineForm(key=b"k"), b"v", (b"k", b"v")),
        (LineForm(key_separator=b":"), b"a:b:c", (b"a", b"b:c")),
        (LineForm(key_separator=b":"), b":", (b"", b"")),
        (LineForm(key_separator=b"--"), b"a-b--c", (b"a-b", b"c")),
        (LineForm(key_separator=b":", null_marker=b"NULL"), b"NULL:v", (None, b"v")),
        (LineForm(key_separator=b":", null_marker=b"NULL"), b"k:NULL", (b"k", None)),
        (LineForm(key=b"NULL", null_marker=b"NULL"), b"NULL", (b"NULL", None)),
        (LineForm(key_separator=b":", null_marker=b""), b"k:", (b"k", None)),
        (LineForm(key_separator=b":"), b"null:null", (b"null", b"null")),
    ],
)
def test_a_line_is_a_record(
    form: LineForm, line: bytes, record: tuple[bytes | None, bytes | None]
) -> None:
    assert form.record_of(line) == record


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(LineError, match=r"there is no key separator '\\t'"):
        LineForm(key_separator=b"\t").record_of(b"no tab here")


@pytest.mark.parametrize(
    ("text", "separator"),
    [(":", b":"), (r"\t", b"\t"), (r"\\t", rb"\t"), (r"a\0b\n", b"a\0b\n"), ("→", "→".encode())],
)
def test_a_separator_may_be_escaped(text: str, separator: bytes) -> None:
    assert unescaped(text) == separator


@pytest.mark.parametrize("text", ["", "\\", r"\x41", r"a\q"])
def test_an_empty_separator_and_unknown_escapes_are_refused(text: str) -> None:
    with pytest.raises(LineError):
        unescaped(text)


def test_headers_have_a_name_and_perhaps_a_value() -> None:
    assert parse_header("trace=a=b") == ("trace", b"a=b")
    assert parse_header("trace=") == ("trace", b"")
    assert parse_header("trace") == ("trace", None)
    with pytest.raises(LineError, match="NAME=VALUE"):
        parse_header("=x")
