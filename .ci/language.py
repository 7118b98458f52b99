"""Checks the language of docs, docstrings and comments: words with a better one, long sentences.

    python .ci/language.py [--all RULE] [--write]

`language.toml` has the rules, and for each rule and folder how many places are left from before it.
More than that fails, with the places; `--write` records that there are fewer. `--all` lists every
place of one rule. Code blocks, quoted code and targets of links are left out.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
SHOWN_MAX = 20
CODE = re.compile(r"``[^`]*``|`[^`]*`|<!--.*?-->|\]\([^)]*\)", re.DOTALL)
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\"(])")
GENERATED = {"CHANGELOG.md", "docs/configuration.md", "docs/apis.md", "docs/metrics.md"}


class Piece(NamedTuple):
    """Prose in one piece: a paragraph, a cell of a table, a docstring, a comment."""

    line: int
    """Of its beginning, from 1."""
    text: str
    is_cell: bool = False


class Place(NamedTuple):
    """One breach of a rule."""

    rule: str
    path: str
    line: int
    words: str


def pieces_of_markdown(text: str) -> Iterator[Piece]:
    """Paragraphs, items and cells, without blocks of code."""
    lines: list[str] = []
    begin, in_code = 1, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        bare = line.strip()
        if bare.startswith(("```", "~~~")):
            in_code = not in_code
        ends = in_code or not bare or bare.startswith(("```", "~~~", "#", "|", "- ", "* "))
        if (ends or re.match(r"\d+\. ", bare)) and lines:
            yield Piece(begin, " ".join(lines))
            lines = []
        if in_code or not bare or bare.startswith(("```", "~~~")):
            continue
        if bare.startswith("|"):
            yield from (Piece(number, cell.strip(), True) for cell in re.split(r"(?<!\\)\|", bare))
        else:
            begin = begin if lines else number
            lines.append(bare.lstrip("#-* "))


def pieces_of_python(source: str) -> Iterator[Piece]:
    """Docstrings by paragraph, and comments, those of lines that follow each other as one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said = node.value.value
            if isinstance(said, str):
                line = node.lineno
                for paragraph in said.split("\n\n"):
                    yield Piece(line, " ".join(paragraph.split()))
                    line += paragraph.count("\n") + 2
    last, begin, lines = -1, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and lines:
            yield Piece(begin, " ".join(lines))
            lines = []
        begin = begin if lines else token.start[0]
        last = token.start[0]
        lines.append(token.string.lstrip("#: "))
    if lines:
        yield Piece(begin, " ".join(lines))


class Rules:
    """What the table asks for."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.words: list[tuple[str, str]] = list(table["words"].items())
        # One group a word: its number says which.
        groups = "|".join(f"({word})" for word, _ in self.words)
        self.any_word = re.compile(rf"\b(?:{groups})\b", re.IGNORECASE)
        self.opening = re.compile(rf"(?:{'|'.join(table['openings'])})\b")
        self.sentence_words_max: int = table["sentence_words_max"]
        self.cell_characters_max: int = table["cell_characters_max"]

    def places(self, path: str, text: str) -> Iterator[Place]:
        """Each breach in one file, piece by piece."""
        of_kind = pieces_of_python if path.endswith(".py") else pieces_of_markdown
        for piece in of_kind(text):
            prose = CODE.sub(lambda found: "]" if found[0][0] == "]" else "x", piece.text)
            for found in self.any_word.finditer(prose):
                word, better = self.words[(found.lastindex or 1) - 1]
                around = prose[max(0, found.start() - 30) : found.end() + 30]
                yield Place(word, path, piece.line, f"...{around}... -> {better}")
            if piece.is_cell and len(prose) > self.cell_characters_max:
                yield Place("cell", path, piece.line, f"{len(prose)} characters in a cell")
            for sentence in SENTENCE_END.split(prose):
                count = len(sentence.split())
                if count > self.sentence_words_max:
                    yield Place("sentence", path, piece.line, f"{count} words: {sentence[:60]}...")
                if self.opening.match(sentence):
                    yield Place("opening", path, piece.line, sentence[:60])


def all_places(rules: Rules) -> dict[str, dict[str, list[Place]]]:
    """By rule, then by folder of the top (`.` for files there)."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    found: dict[str, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
    for path in listed:
        if not path or path in GENERATED or path.startswith("tests/") or not (ROOT / path).exists():
            continue
        folder = path.split("/")[0] if "/" in path else "."
        for place in rules.places(path, (ROOT / path).read_text()):
            found[place.rule][folder].append(place)
    return found


def changed_first(ones: list[Place]) -> list[Place]:
    """Those of files that differ from the last commit before all others."""
    diff = subprocess.run(
        ["git", "diff", "--name-only", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    changed = set(diff.stdout.split("\n"))
    return sorted(ones, key=lambda place: place.path not in changed)


def written(text: str, counts: Mapping[str, Mapping[str, int]]) -> str:
    """The table with other counts behind its rules."""
    head = text.split("\n[left.", 1)[0].rstrip("\n")
    parts = []
    for rule in sorted(counts):
        left = "\n".join(f'"{folder}" = {count}' for folder, count in sorted(counts[rule].items()))
        parts.append(f'[left."{rule}"]\n{left}\n')
    return "\n\n".join([head, *(part.rstrip("\n") for part in parts)]) + "\n"


def main() -> int:
    """Compare what is there with what the table has left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--all", metavar="RULE", help="list every place of one rule")
    parser.add_argument("--write", action="store_true", help="record the counts of today")
    asked = parser.parse_args()
    table = tomllib.loads(TABLE.read_text())
    found = all_places(Rules(table))
    if asked.all:
        lines = [
            f"{p.path}:{p.line}: {p.words}" for ones in found[asked.all].values() for p in ones
        ]
        print("\n".join(lines))
        return 0
    if asked.write:
        counts = {
            rule: {folder: len(ones) for folder, ones in folders.items()}
            for rule, folders in found.items()
        }
        TABLE.write_text(written(TABLE.read_text(), counts))
        return 0
    left = table.get("left", {})
    failed = False
    for rule, folders in found.items():
        for folder, ones in folders.items():
            before = left.get(rule, {}).get(folder, 0)
            if len(ones) <= before:
                continue
            failed = True
            print(f"{rule} in {folder}: {len(ones)}, where {before} are allowed; the first:")
            for place in changed_first(ones)[:SHOWN_MAX]:
                print(f"  {place.path}:{place.line}: {place.words}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
