"""Tables of planted bugs: `tests/planted/<package>.toml`, by the package of the first edit.

    [AD01]
    why = "Adopting a log end ends below local records that are others."
    tests = ["tests/unit/tidemark/remote/test_remote_adoption.py"]
    file = "tidemark/remote/adoption.py"
    function = "adopt_end"
    old = "    lowest = max(proved, here + 1)"
    new = "    lowest = proved"

`why` says what the changed program does wrong, and each of `tests` (paths or pytest ids) must fail,
on its own or with others. `function` is the qualified name of a function or class in which the
lines `old` occur once; without it they occur once in the file. Without `new` they are deleted.
Where a bug needs several edits, each is a table `[[AD01.edits]]` of these four. `seed` is of
a bug that a simulated quorum finds, or another `world`: "nodes" or "replication"
(docs/testing.md). Text is folded, tables and bugs are in the order of their names.
"""

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TABLES = Path("tests/planted")
COLUMNS = 110
HEADER = re.compile(r"^\[(\w+)\]\n", re.MULTILINE)


@dataclass(frozen=True)
class Edit:
    """Lines of a file, and what a bug makes of them."""

    file: str
    function: str | None
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class Planted:
    """One bug; `seed` of the simulated `world` finds it."""

    id: str
    table: Path
    why: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]
    seed: int | None = None
    world: str = "quorum"


class BadTable(Exception):
    """A table that does not say what it has to say, or that no longer fits the tree."""


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of an `old` or `new`, whose last end of line is excluded or not."""
    return tuple(text.removesuffix("\n").split("\n")) if text else ()


EDIT_FIELDS = {"file", "function", "old", "new"}
BUG_FIELDS = {"why", "tests", "simulate", "seed", "world"}


def edit_of(fields: Mapping[str, Any]) -> Edit:
    """An edit as a table has it."""
    old, new = lines_of(fields["old"]), lines_of(fields.get("new", ""))
    return Edit(fields["file"], fields.get("function"), old, new)


def wrong_fields(fields: Mapping[str, Any]) -> list[str]:
    """What a bug's fields lack: each is known, a test is named, and each edit changes lines."""
    edits = fields.get("edits", [fields])
    known = BUG_FIELDS | ({"edits"} if "edits" in fields else EDIT_FIELDS)
    inner = [one.keys() - EDIT_FIELDS for one in fields.get("edits", [])]
    unknown = (fields.keys() - known).union(*inner)
    wrong = [f"no field of a planted bug is called {one}" for one in sorted(unknown)]
    if not fields["tests"]:
        wrong.append("`tests` names none: which test notices it?")
    if any(not one["old"] or one["old"] == one.get("new") for one in edits):
        wrong.append("an edit changes nothing: `old` is empty, or `new` is the same")
    return wrong


def read_table(path: Path) -> list[Planted]:
    """Read the bugs of one table.

    Raises:
        BadTable: it is no TOML, a field is missing or unknown, or an edit changes nothing.
    """
    bugs = []
    name = ""
    try:
        for name, fields in tomllib.loads(path.read_text()).items():
            if wrong := wrong_fields(fields):
                raise BadTable(f"{path}: {name}: {'; '.join(wrong)}")
            edits = tuple(edit_of(one) for one in fields.get("edits", [fields]))
            why, tests = " ".join(fields["why"].split()), tuple(fields["tests"])
            seed, world = fields.get("seed"), fields.get("world", "quorum")
            bugs.append(Planted(name, path, why, tests, edits, seed, world))
    except tomllib.TOMLDecodeError as error:
        raise BadTable(f"{path}: {error}") from error
    except KeyError as error:
        raise BadTable(f"{path}: {name} has no field {error}") from error
    return bugs


def read_tables(root: Path, ids: Sequence[str] = ()) -> list[Planted]:
    """Read the bugs of these ids, all if there are none, by id."""
    bugs = [bug for path in (root / TABLES).glob("*.toml") for bug in read_table(path)]
    found = {bug.id: bug for bug in sorted(bugs, key=lambda bug: bug.id)}
    if len(found) < len(bugs):
        twice = [one.id for one in bugs if found[one.id] is not one]
        raise BadTable(f"two planted bugs have the same id: {' '.join(twice)}")
    unknown = [one for one in ids if one not in found]
    if unknown:
        raise BadTable(f"no such planted bug: {' '.join(unknown)} (there are: {' '.join(found)})")
    return [found[one] for one in (ids or found)]


def recorded_seeds(world: str = "quorum") -> set[int]:
    """The seeds of a simulated world that find a planted bug."""
    bugs = read_tables(ROOT)
    return {bug.seed for bug in bugs if bug.seed is not None and bug.world == world}


@cache
def scopes(file: str, text: str) -> dict[str | None, list[range]]:
    """The lines of each function and class by its qualified name, counted from 0; None: all.

    Two may have one name, as a property and its setter do.
    """
    found: dict[str | None, list[range]] = {None: [range(text.count("\n") + 1)]}

    def visit(node: ast.AST, qualified: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = qualified
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{qualified}.{child.name}".lstrip(".")
                first = min(one.lineno for one in (child, *child.decorator_list)) - 1
                assert child.end_lineno is not None
                found.setdefault(name, []).append(range(first, child.end_lineno))
            visit(child, name)

    if file.endswith(".py"):
        visit(ast.parse(text), "")
    return found


def places(lines: Sequence[str], old: Sequence[str], inside: Sequence[range]) -> list[int]:
    """Where lines begin that lie whole within one of some ranges."""
    return [
        first
        for one in inside
        for first in range(one.start, one.stop - len(old) + 1)
        if lines[first] == old[0] and tuple(lines[first : first + len(old)]) == tuple(old)
    ]


def edited(text: str, file: str, edits: Sequence[Edit]) -> str:
    """A file's text with a bug's edits of it.

    Raises:
        BadTable: an edit's lines are not there exactly once, or two edits overlap.
    """
    lines = text.split("\n")
    changes = []
    for edit in edits:
        at = f"{edit.function} of {file}" if edit.function else file
        inside = scopes(file, text).get(edit.function)
        if inside is None:
            raise BadTable(f"there is no {at}: change `file` and `function` to where the code is")
        found = places(lines, edit.old, inside)
        if len(found) != 1:
            raise BadTable(
                f"`old` is {len(found)} times in {at}: make it the lines that are there now, "
                f"with so much around them that they are there once:\n" + "\n".join(edit.old)
            )
        changes.append((found[0], edit))
    end = len(lines)
    for first, edit in sorted(changes, key=lambda change: -change[0]):
        if first + len(edit.old) > end:
            raise BadTable(f"two edits of {file} overlap: make them one")
        lines[first : first + len(edit.old)] = edit.new
        end = first
    return "\n".join(lines)


def planted_texts(root: Path, bug: Planted) -> dict[Path, str]:
    """The text that each file of a bug has with it.

    Raises:
        BadTable: it does not fit this tree; the error names bug, file and function.
    """
    texts = {}
    for file in dict.fromkeys(edit.file for edit in bug.edits):
        try:
            text = (root / file).read_text()
            edits = [edit for edit in bug.edits if edit.file == file]
            texts[root / file] = edited(text, file, edits)
        except FileNotFoundError:
            raise BadTable(f"{bug.id}: there is no {file}: change `file` to where it is") from None
        except BadTable as error:
            raise BadTable(f"{bug.id}: {error}") from None
    return texts


def edits_between(file: str, before: str, after: str) -> Iterator[Edit]:
    """The edits that lead from one text of a file to another, as short as they can be."""
    old, new = before.split("\n"), after.split("\n")
    inside = [(one, name) for name, ranges in scopes(file, before).items() for one in ranges]
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(1):
        changed = [opcode for opcode in group if opcode[0] != "equal"]
        (_, first, _, new_first, _), (_, _, end, _, new_end) = changed[0], changed[-1]
        for more in range(len(old)):  # lines around it, until it is there once
            found = []
            for up in range(min(more, first), -1, -1):
                low, high = first - up, end + more - up
                holders = [one for one in inside if one[0].start <= low and high <= one[0].stop]
                if not holders or not "".join(old[low:high]).strip():
                    continue
                _, name = min(holders, key=lambda one: len(one[0]))
                ranges = scopes(file, before)[name]
                if len(places(old, old[low:high], ranges)) == 1:
                    found.append((len(ranges[0]), low, high, name))
            if found:
                _, low, high, name = min(found, key=lambda one: one[0])
                lines = (*old[low:first], *new[new_first:new_end], *old[end:high])
                yield Edit(file, name, tuple(old[low:high]), lines)
                break


def toml_text(text: str) -> str:
    """A string as TOML has it, in the quotes that need no escapes, if there are such."""
    if "\n" in text:
        quotes = "'''" if '"""' in text or "\\" in text else '"""'
        assert quotes not in text
        assert quotes == "'''" or "\\" not in text
        return f"{quotes}\n{text}\n{quotes}"
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    if "'" not in text:
        return f"'{text}'"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def edit_text(edit: Edit) -> str:
    """An edit as a table has it, but for its file."""
    lines = [] if edit.function is None else [f'function = "{edit.function}"']
    lines.append("old = " + toml_text("\n".join(edit.old)))
    if edit.new:
        lines.append("new = " + toml_text("\n".join(edit.new)))
    return "\n".join(lines)


def entry(bug: Planted) -> str:
    """A bug's entry in its table."""
    why = bug.why if len(bug.why) < COLUMNS - 8 else "\n".join(textwrap.wrap(bug.why, COLUMNS))
    tests = f"tests = [{', '.join(map(toml_text, bug.tests))}]"
    if len(tests) > COLUMNS and len(bug.tests) > 1:
        tests = "\n".join(["tests = [", *(f"    {toml_text(one)}," for one in bug.tests), "]"])
    lines = [f"[{bug.id}]", f"why = {toml_text(why)}", tests]
    if bug.seed is not None:
        lines.append(f"seed = {bug.seed}")
    if bug.world != "quorum":
        lines.append(f'world = "{bug.world}"')
    for edit in bug.edits:
        if len(bug.edits) > 1:
            lines.append(f"[[{bug.id}.edits]]")
        lines += [f'file = "{edit.file}"', edit_text(edit)]
    return "\n".join(lines) + "\n"


def entries(table: Path) -> dict[str, str]:
    """A table's entries as they are written, by their ids."""
    text = table.read_text() if table.exists() else ""
    _, *parts = HEADER.split(text)
    return {
        name: f"[{name}]\n{body.rstrip()}\n"
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def write_entries(table: Path, texts: Mapping[str, str]) -> None:
    """Write a table's entries, by their ids."""
    table.write_text("\n".join(texts[name] for name in sorted(texts)))
