"""Java's patterns in Python: the same names match, or the pattern is refused."""

import pytest

from pipeline.errors import OptionError
from pipeline.spark.options_pattern import compile_java_pattern


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders"]),
        (r"topic-\d{2}", ["topic-07"], ["topic-7", "topic-007"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"(?<x>a|b)-\k<x>", ["a-a", "b-b"], ["a-b"]),
        (r"\p{Lower}+", ["abc"], ["Abc"]),
        (r"\P{Lower}+", ["ABC"], ["aBC"]),
        (r"[\p{Digit}_]+", ["1_2"], ["a"]),
        (r"(?i)orders", ["ORDERS"], ["order"]),
        (r"(?i:or)ders", ["ORders"], ["ORDERS"]),
        (r"a++b", ["aab"], ["a"]),
        (r"(?>a|ab)c", ["ac"], ["abc"]),
        (r"x\z", ["x"], ["xy"]),
        (r"a|b", ["a", "b"], ["ab"]),
        (r"[^.]+", ["ab"], ["a.b"]),
        (r"[a|~-]+", ["a|~-"], ["b"]),
        (r"(?!__).*", ["orders"], ["__orders"]),
    ],
)
def test_names_match_as_in_java(pattern: str, matches: list[str], others: list[str]) -> None:
    compiled = compile_java_pattern(pattern)
    assert all(compiled.fullmatch(one) for one in matches)
    assert not any(compiled.fullmatch(one) for one in others)


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z&&[^b]]",
        "[a[b]]",
        "[]a]",
        "[a",
        "[a--b]",
        "(?P<x>a)",
        "(?#c)a",
        "(?u)a",
        "(?x)a b",
        "a(?i)b",
        r"\h",
        r"\R",
        r"\Z",
        r"\x{41}",
        r"\071",
        r"\p{Greek}",
        r"[\P{Lower}]",
        "a{,3}",
        "a{x}",
        "*a",
        "(a",
        "a\\",
        "",
        "  ",
    ],
)
def test_what_python_reads_differently_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match=r"^option subscribePattern") as caught:
        compile_java_pattern(pattern)
    assert "\n" not in str(caught.value)
