"""`tidemark pipeline`: what is refused before Spark is started."""

import pytest

from pipeline.jobs import session
from tests.support.samples.command_line import tidemark


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bucket=/x", "--to=y", "--tail"), "--tail needs --bootstrap-server"),
        (("--bucket=/x",), "say where to export to: one of --to, --iceberg and --delta"),
        (("--bucket=/x", "--to=y", "--delta=z"), "one of --to, --iceberg and --delta"),
        (("--to=y",), "say where the log is"),
        (("--bucket=/x", "--to=y", "--topic-id=short"), "22 characters"),
        (("--bucket=/x", "--to=y", *2 * ("--log-start=0=1",)), "given twice for partition 0"),
    ],
)
def test_an_export_that_cannot_be_starts_no_spark(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(session, "spark_session", None)
    done = tidemark("pipeline", "export", "orders", *arguments)
    assert done.exit_code == 1
    assert words in done.stderr
    assert done.stdout == ""
