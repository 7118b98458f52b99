"""The diagram of roles in docs/metadata-log.md is drawn from the table of transitions."""

from pathlib import Path

from metadata_topic.raft.roles import TRANSITIONS, Role

PAGE = Path(__file__).parents[3] / "docs" / "metadata-log.md"


def drawn() -> str:
    """The diagram in Mermaid's words; paste it when the table has changed."""
    lines = ["stateDiagram-v2", "    [*] --> unattached"]
    for old, news in TRANSITIONS.items():
        for new, why in news.items():
            text = why.replace(";", " /")  # a semicolon ends a statement of Mermaid
            lines.append(f"    {old.value} --> {new.value}: {text}")
    return "\n".join(lines)


def test_the_page_shows_the_table() -> None:
    assert f"```mermaid\n{drawn()}\n```" in PAGE.read_text()


def test_every_role_is_in_it_and_can_be_left() -> None:
    text = drawn()
    for role in Role:
        assert f"    {role.value} --> " in text
        assert f" --> {role.value}" in text
