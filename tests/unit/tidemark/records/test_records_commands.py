"""Wrong options of `tidemark produce` and `consume`: one line, before a broker is asked."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.samples.command_line import tidemark

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("consume",), "name a topic: TOPIC, or --topic TOPIC", 2),
        (("consume", "a", "-t", "b"), "two topics are named: a and b", 2),
        (("consume", "a", "--from", "soon"), "allowed is earliest, latest, end-10", 2),
        (
            ("consume", "a", "--from-beginning", "-o", "-3"),
            "--from-beginning contradicts --from",
            2,
        ),
        (("consume", "a", "--follow", "-e"), "--exit contradicts --follow", 2),
        (("consume", "a", "-G", "g", "-p", "0"), "--partition and --group do not go together", 2),
        (("consume", "a", "-G", "g", "-o", "5"), "--group begins where it has committed", 2),
        (("consume", "a", "-J", "--output", "raw"), "--output raw has no objects of JSON", 2),
        (("consume", "a", "--value", "json", "-K", ":"), "--key-separator is for --output raw", 2),
        (("consume", "a", "-K", ""), "at least one character", 2),
        (("consume", "a", "-n", "0"), "0 is not in the range", 2),
        (("consume", "a", "-X", "group.id"), "--command-property=group.id: must be key=value", 1),
        (("consume", "a", "--command-config", "/not/there"), "config file=/not/there", 1),
        (("produce", "a", "-k", "x", "-K", ":"), "--key and --key-separator do not go together", 2),
        (("produce", "a", "--file", "/not/there"), "File '/not/there' does not exist", 2),
        (("produce", "a", "-H", "=x"), "a header is NAME=VALUE", 2),
        (("produce", "a", "--acks", "2"), "'2' is not one of", 2),
        (("produce", "a", "-X", "foo=1"), "settings of the client: No such configuration", 1),
    ],
)
def test_wrong_options_are_one_line(arguments: tuple[str, ...], words: str, code: int) -> None:
    done = tidemark(*arguments)
    assert done.exit_code == code
    assert words in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_neither_command_needs_arrow_numpy_or_a_store() -> None:
    code = (
        "import sys; sys.modules |= dict.fromkeys(('pyarrow', 'numpy', 'boto3', 'fsspec'))\n"
        "import tidemark.commands.consume, tidemark.commands.produce\n"
        "import tidemark.records.client, confluent_kafka\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
