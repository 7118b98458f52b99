"""What `make mutate` changes without a test's notice has a verdict, and its lines are there."""

from tests.mutation.run import VERDICTS, read_modules, read_survivors
from tests.support.named_tests import is_there
from tests.support.planted_bugs import ROOT, edited


def test_each_module_and_test_of_mutation_is_there() -> None:
    for module, tests in read_modules().items():
        assert (ROOT / module).exists(), module
        assert [one for one in tests if not is_there(one)] == [], module


def test_each_survivor_has_one_verdict_and_its_lines_are_there_once() -> None:
    modules = read_modules()
    for edit, fields in read_survivors().items():
        assert edit.file in modules, "modules.toml does not name it"
        edited((ROOT / edit.file).read_text(), edit.file, [edit])
        (verdict,) = VERDICTS & fields.keys()
        assert fields[verdict], edit
        assert verdict != "killed_by" or is_there(fields[verdict]), edit
