import logging

import pytest

from rsm_plugins.settings import Setting, boolean, choice, integer, read_settings, text

SETTINGS = (
    text("bucket", "where", allowed="a bucket's name", required=True),
    text("secret.key", "who", secret=True),
    integer("part.size.bytes", "how much", default=8, low=5, high=100),
    boolean("path.style", "how", default=False),
    choice("sse", "what", ("none", "AES256"), default="none"),
    Setting("hex", None, "x", "hexadecimal", bytes.fromhex, secret=True),
)


def test_defaults_are_parsed_like_values() -> None:
    assert read_settings(SETTINGS, {"bucket": " b "}) == {
        "bucket": "b",
        "secret.key": None,
        "part.size.bytes": 8,
        "path.style": False,
        "sse": "none",
        "hex": None,
    }


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("part.size.bytes", "4", "5 to 100"),
        ("part.size.bytes", "101", "5 to 100"),
        ("part.size.bytes", "many", "5 to 100"),
        ("path.style", "yes", "true or false"),
        ("sse", "aes256", "one of none, AES256"),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(ValueError) as raised:
        read_settings(SETTINGS, {"bucket": "b", name: value})
    assert str(raised.value) == f"rsm.config.{name}={value}: allowed is {allowed}"


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(ValueError, match=r"rsm\.config\.bucket is missing: .* a bucket's name"):
        read_settings(SETTINGS, {"bucket": " "})


def test_a_missing_setting_names_a_misspelt_one_that_may_be_meant() -> None:
    with pytest.raises(ValueError, match=r"bucket is missing: .*; is rsm\.config\.buckte meant"):
        read_settings(SETTINGS, {"buckte": "b", "path.style": "true"})


def test_a_secret_is_not_shown() -> None:
    with pytest.raises(ValueError) as raised:
        read_settings(SETTINGS, {"bucket": "b", "hex": "hunter2"})
    assert "hunter2" not in str(raised.value)


def test_an_unknown_setting_is_a_warning_with_the_nearest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read_settings(SETTINGS, {"bucket": "b", "buckett": "x", "node.id": "1"})
    (record,) = caplog.records
    assert "rsm.config.buckett" in record.getMessage()
    assert "did you mean rsm.config.bucket?" in record.getMessage()
