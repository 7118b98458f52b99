"""The disk that forgets: what is not fsynced is lost for some seed, what is fsynced for none."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.disk import Disk, OpenFile
from tests.support.sim.dice import SeededDice
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError

SEEDS = 150
State = dict[str, bytes | None]
OLD = b"old content" * 200
NEW = b"NEW CONTENT" * 200


def state_of(root: Path) -> State:
    """Every name below `root`: a file's content, None for a directory."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def after_cuts(
    act: Callable[[Disk, Path], object], before: State | None = None, *, seeds: int = SEEDS
) -> list[State]:
    """What the disk holds after `act` and a power cut, for many seeds."""
    states = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for path, content in (before or {}).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                if content is None:
                    (root / path).mkdir(exist_ok=True)
                else:
                    (root / path).write_bytes(content)
            disk = PowerCutDisk(root, SeededDice(seed))
            act(disk, root)
            disk.cut()
            states.append(state_of(root))
    return states


def write_new(disk: Disk, path: Path, data: bytes = NEW) -> OpenFile:
    file = disk.open_append(path)
    disk.append(file, data)
    return file


class TestContent:
    def test_an_append_is_lost_kept_torn_or_zeros(self) -> None:
        contents = {
            state["f"]
            for state in after_cuts(lambda disk, root: write_new(disk, root / "f"), {"f": OLD})
        }
        assert OLD in contents
        assert OLD + NEW in contents
        assert any(c is not None and len(OLD) < len(c) < len(OLD + NEW) for c in contents), "torn"
        assert any(c is not None and OLD + bytes(600) in c for c in contents), "zeros"
        assert all(c is not None and c.startswith(OLD) for c in contents)

    def test_a_later_append_may_survive_without_the_one_before(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            file = write_new(disk, root / "f", b"1" * 600)
            disk.append(file, b"2" * 600)

        contents = [state["f"] for state in after_cuts(act, {"f": b""})]
        assert any(c is not None and b"2" in c and b"1" not in c for c in contents)

    @pytest.mark.parametrize("by_path", [False, True])
    def test_what_was_fsynced_is_never_lost(self, by_path: bool) -> None:
        def act(disk: Disk, root: Path) -> None:
            file = disk.open_write(root / "f")
            disk.write_at(file, 5, NEW)
            disk.truncate(file, 2000)
            if by_path:
                disk.fsync_path(root / "f")
            else:
                disk.fsync(file)

        expected = (OLD[:5] + NEW)[:2000]
        assert all(state == {"f": expected} for state in after_cuts(act, {"f": OLD}))

    def test_a_write_in_the_middle_leaves_old_or_new_sectors(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.write_at(disk.open_write(root / "f"), 0, b"n" * 2048)

        contents = {state["f"] for state in after_cuts(act, {"f": b"o" * 2048})}
        assert {b"o" * 2048, b"n" * 2048} < contents
        assert all(c is not None and len(c) == 2048 for c in contents)

    def test_a_cut_of_a_file_may_come_back(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.truncate(disk.open_write(root / "f"), 3)

        assert {state["f"] for state in after_cuts(act, {"f": OLD})} == {OLD, OLD[:3]}

    def test_old_bytes_behind_a_cut_may_stay_behind_new_ones(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            file = disk.open_append(root / "f")
            disk.truncate(file, 512)
            disk.append(file, b"n" * 512)

        contents = {state["f"] for state in after_cuts(act, {"f": b"o" * 2048})}
        assert b"o" * 512 + b"n" * 512 + b"o" * 1024 in contents

    def test_a_whole_file_may_be_old_new_empty_or_torn(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.atomic_write(root / "f", NEW, durable=False)

        states = after_cuts(act, {"f": OLD})
        contents = {state["f"] for state in states}
        assert {OLD, NEW, b""} < contents
        assert any(c is not None and 0 < len(c) < len(NEW) for c in contents)

    def test_a_durable_whole_file_is_new(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.atomic_write(root / "f", NEW)

        assert all(state == {"f": NEW} for state in after_cuts(act, {"f": OLD}))
        assert all(state == {"f": NEW} for state in after_cuts(act))

    def test_a_temporary_file_left_by_an_earlier_life_is_emptied_first(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.atomic_write(root / "f", b"new")

        assert all(state == {"f": b"new"} for state in after_cuts(act, {"f.tmp": OLD}))


class TestNames:
    @pytest.mark.parametrize("opened", ["open_append", "open_write", "open_empty"])
    def test_fsync_of_a_new_file_does_not_keep_its_name(self, opened: str) -> None:
        def act(disk: Disk, root: Path) -> None:
            file = getattr(disk, opened)(root / "f")
            disk.write_at(file, 0, NEW) if opened != "open_append" else disk.append(file, NEW)
            disk.fsync(file)

        states = after_cuts(act)
        assert {} in states
        assert {"f": NEW} in states
        assert all(state in ({}, {"f": NEW}) for state in states)

    def test_file_and_directory_fsynced_is_kept(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.fsync(write_new(disk, root / "f"))
            disk.fsync_path(root)

        assert all(state == {"f": NEW} for state in after_cuts(act))

    def test_the_directory_alone_keeps_the_name_of_an_empty_file(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            write_new(disk, root / "f")
            disk.fsync_path(root)

        states = after_cuts(act)
        assert {"f": b""} in states
        assert all("f" in state for state in states)

    @pytest.mark.parametrize("durable", [False, True])
    def test_a_rename_is_lost_as_a_whole_or_not_at_all(self, durable: bool) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.rename(root / "a", root / "b", durable=durable)

        states = after_cuts(act, {"a": NEW, "b": OLD})
        assert all(state in ({"a": NEW, "b": OLD}, {"b": NEW}) for state in states)
        assert ({"a": NEW, "b": OLD} in states) is not durable

    def test_a_chain_of_renames_never_loses_the_file(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.rename(root / "a", root / "b")
            disk.rename(root / "b", root / "c")
            disk.fsync(write_new(disk, root / "a", b"another"))

        for state in after_cuts(act, {"a": OLD}):
            assert list(state.values()).count(OLD) == 1

    @pytest.mark.parametrize("fsynced", [False, True])
    def test_an_unlinked_file_comes_back_unless_the_directory_is_fsynced(
        self, fsynced: bool
    ) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.unlink(root / "f")
            if fsynced:
                disk.fsync_path(root)

        states = after_cuts(act, {"f": OLD})
        assert ({"f": OLD} in states) is not fsynced
        assert {} in states

    def test_changes_of_different_names_survive_in_any_order(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.unlink(root / "a")
            disk.unlink(root / "b")

        states = after_cuts(act, {"a": b"", "b": b""})
        assert all(some in states for some in ({}, {"a": b""}, {"b": b""}))

    def test_fsync_of_a_directory_keeps_nothing_of_another(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.unlink(root / "one" / "f")
            disk.fsync_path(root / "two")
            disk.fsync_path(root)

        assert any("one/f" in state for state in after_cuts(act, {"one/f": OLD, "two/f": OLD}))


class TestDirectories:
    def test_a_new_directory_is_lost_with_all_that_was_fsynced_in_it(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.make_dirs(root / "d" / "e")
            disk.atomic_write(root / "d" / "e" / "f", NEW)

        states = after_cuts(act)
        assert {} in states
        assert {"d": None} in states
        assert {"d": None, "d/e": None, "d/e/f": NEW} in states

    def test_a_new_directory_is_kept_by_fsync_of_its_parent(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.make_dirs(root / "d")
            disk.fsync_path(root)
            disk.atomic_write(root / "d" / "f", NEW)

        assert all(state == {"d": None, "d/f": NEW} for state in after_cuts(act))

    @pytest.mark.parametrize("fsynced", [False, True])
    def test_a_removed_tree_may_come_back_in_part(self, fsynced: bool) -> None:
        before: State = {"d": None, "d/e": None, "d/e/f": OLD, "d/g": OLD}

        def act(disk: Disk, root: Path) -> None:
            disk.remove_tree(root / "d")
            if fsynced:
                disk.fsync_path(root)

        states = after_cuts(act, before)
        assert (before in states) is not fsynced
        assert ({"d": None} in states) is not fsynced
        assert {} in states

    def test_a_renamed_directory_comes_back_with_its_files(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            disk.rename(root / "d", root / "d-delete")
            disk.fsync(write_new(disk, root / "d-delete" / "f"))

        states = after_cuts(act, {"d/e/f": OLD, "d/f": OLD})
        rest: State = {"/e": None, "/e/f": OLD, "/f": OLD + NEW, "": None}
        for state in states:
            assert state in [{name + k: v for k, v in rest.items()} for name in ("d", "d-delete")]
        assert any("d" in state for state in states)
        assert any("d-delete" in state for state in states)


class TestTheCut:
    def test_one_seed_gives_one_state(self) -> None:
        def act(disk: Disk, root: Path) -> None:
            for name in "abcdef":
                write_new(disk, root / name)
                disk.atomic_write(root / (name + "2"), OLD, durable=False)

        states = after_cuts(act, seeds=10)
        assert states == after_cuts(act, seeds=10)
        assert any(state != states[0] for state in states)

    def test_the_power_goes_in_the_operation_of_the_given_number(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"")
        disk = PowerCutDisk(tmp_path, SeededDice(1), operations=2)
        file = write_new(disk, tmp_path / "f", b"first")
        with pytest.raises(PowerCutError):
            disk.fsync(file)
        assert disk.is_off
        held = (tmp_path / "f").read_bytes()
        for act in (
            lambda: disk.append(file, b"more"),
            lambda: disk.write_at(file, 0, b"more"),
            lambda: disk.truncate(file, 0),
            lambda: disk.fsync(file),
            lambda: disk.fsync_path(tmp_path),
            lambda: disk.atomic_write(tmp_path / "f", b"more"),
            lambda: disk.open_append(tmp_path / "f"),
            lambda: disk.open_write(tmp_path / "g"),
            lambda: disk.rename(tmp_path / "f", tmp_path / "g"),
            lambda: disk.unlink(tmp_path / "f"),
            lambda: disk.make_dirs(tmp_path / "d"),
            lambda: disk.remove_tree(tmp_path),
        ):
            with pytest.raises(PowerCutError):
                act()
        assert state_of(tmp_path) == {"f": held}

    def test_an_fsync_that_the_cut_interrupts_has_promised_nothing(self) -> None:
        contents = set()
        for seed in range(SEEDS):
            with tempfile.TemporaryDirectory() as name:
                (Path(name) / "f").write_bytes(OLD)
                disk = PowerCutDisk(Path(name), SeededDice(seed), operations=2)
                file = write_new(disk, Path(name) / "f")
                with pytest.raises(PowerCutError):
                    disk.fsync(file)
                contents.add((Path(name) / "f").read_bytes())
        assert {OLD, OLD + NEW} < contents

    def test_what_others_write_below_the_root_is_left_alone(self, tmp_path: Path) -> None:
        disk = PowerCutDisk(tmp_path, SeededDice(1))
        (tmp_path / "never-met").write_bytes(OLD)
        (tmp_path / "met").write_bytes(OLD)
        disk.fsync(write_new(disk, tmp_path / "met"))
        disk.cut()
        assert state_of(tmp_path) == {"met": OLD + NEW, "never-met": OLD}

    def test_paths_outside_the_root_are_ordinary(self, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        disk = PowerCutDisk(tmp_path / "root", SeededDice(1))
        write_new(disk, tmp_path / "f")
        disk.rename(tmp_path / "f", tmp_path / "g")
        memory = disk.memfd("m")
        disk.write_at(memory, 0, b"x")
        disk.cut()
        assert state_of(tmp_path) == {"g": NEW, "root": None}

    def test_the_process_sees_its_files_as_on_any_disk(self, tmp_path: Path) -> None:
        disk = PowerCutDisk(tmp_path, SeededDice(1))
        write_new(disk, tmp_path / "f")
        disk.atomic_write(tmp_path / "f", b"whole")
        assert disk.read_file(tmp_path / "f") == b"whole"
        assert disk.list_dir(tmp_path) == ["f"]
        lock = disk.lock(tmp_path / ".lock")
        lock.release()
        with pytest.raises(FileNotFoundError):
            disk.unlink(tmp_path / "g", missing_ok=False)
        with pytest.raises(FileNotFoundError):
            disk.fsync_path(tmp_path / "g")
