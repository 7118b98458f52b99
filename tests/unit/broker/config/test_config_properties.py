import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.properties import PropertiesError, decode, dump, parse
from tests.support.samples.config import SERVER_PROPERTIES


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_file_like_kafkas_own_is_read_whole(line_end: str) -> None:
    entries = parse(SERVER_PROPERTIES.replace("\n", line_end))
    assert entries["listeners"] == "PLAINTEXT://:9092,CONTROLLER://:9093"
    assert entries["controller.quorum.bootstrap.servers"] == "localhost:9093"
    assert entries["controller.listener.names"] == "CONTROLLER"
    assert entries["num.network.threads"] == "3"
    assert entries["socket.send.buffer.bytes"] == "102400"
    assert entries["log.dirs"] == "data/kraft combined/logs"
    assert "log.retention.bytes" not in entries
    assert len(entries) == 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a : b ", {"a": "b "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        (r"a\=b=c", {"a=b": "c"}),
        (r"a=\u0041\t\\", {"a": "A\t\\"}),
        ("a=1\\\n  # not a comment", {"a": "1# not a comment"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        (r"path=C\:\\x", {"path": r"C:\x"}),
        ("", {}),
        ("\f \t\n#x", {}),
    ],
)
def test_the_grammar_is_javas(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


def test_a_broken_unicode_escape_names_the_line() -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse("a=1\nb=\\u12x4\n")


def test_a_file_that_is_not_utf8_is_latin1() -> None:
    assert parse(decode("name=Zürich".encode("latin-1"))) == {"name": "Zürich"}
    assert parse(decode("\ufeffname=Zürich".encode())) == {"name": "Zürich"}


def escaped(text: str) -> str:
    """Write every character as Java may: as a \\u escape of its UTF-16 unit."""
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


PLAIN = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(PLAIN.filter(bool), PLAIN), st.sampled_from(["=", ":", " ", " \t= "]))
def test_whatever_is_escaped_comes_back(entries: dict[str, str], separator: str) -> None:
    text = "\n".join(f"{escaped(k)}{separator}{escaped(v)}" for k, v in entries.items())
    assert parse(text) == entries


@given(st.dictionaries(PLAIN.filter(bool), PLAIN))
def test_what_is_dumped_comes_back(entries: dict[str, str]) -> None:
    assert parse(dump(entries)) == entries


@given(st.text())
def test_any_text_is_read_or_refused_cleanly(text: str) -> None:
    try:
        entries = parse(text)
    except PropertiesError:
        return
    assert all(isinstance(value, str) for value in entries.values())
