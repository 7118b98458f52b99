"""Versions of a sorted map against dicts that are copied whole."""

from hypothesis import given
from hypothesis import strategies as st

from metadata_topic.image import sorted_map
from metadata_topic.image.sorted_map import CHUNK_ENTRIES_MAX, SortedMap, Tally

# Enough to split and to join chunks of 512.
KEYS = st.integers(0, 5 * CHUNK_ENTRIES_MAX)
FIRST, COUNT, STEP = KEYS, st.integers(1, 2 * CHUNK_ENTRIES_MAX), st.sampled_from((1, 7))
RUNS = st.tuples(st.booleans(), FIRST, COUNT, STEP)


def after(base: dict[int, int], run: tuple[bool, int, int, int], value: int) -> dict[int, int]:
    adds, first, count, step = run
    keys = range(first, first + count * step, step)
    if adds:
        return base | dict.fromkeys(keys, value)
    gone = set(keys)
    return {key: old for key, old in base.items() if key not in gone}


@given(st.lists(st.lists(RUNS, max_size=3), max_size=8))
def test_each_version_holds_what_a_copied_dict_holds_in_the_order_of_keys(
    steps: list[list[tuple[bool, int, int, int]]],
) -> None:
    now: SortedMap[int, int] = SortedMap()
    twin: dict[int, int] = {}
    versions = [(now, twin)]
    tally: Tally[int] = Tally(lambda values: {"odd": sum(value % 2 for value in values)})
    for number, runs in enumerate(steps):
        editor = now.edit()
        for run in runs:
            adds, first, count, step = run
            for key in range(first, first + count * step, step):
                if adds:
                    editor[key] = number
                else:
                    editor.pop(key, None)
            twin = after(twin, run, number)
            assert dict(editor) == twin
        now = editor.map()
        versions.append((now, twin))
        assert tally.of(now)["odd"] == sum(value % 2 for value in twin.values())
    for version, entries in versions:
        assert list(version.items()) == sorted(entries.items())
        assert list(version.values()) == [entries[key] for key in sorted(entries)]
        assert len(version) == len(entries)
        assert all(len(chunk) <= CHUNK_ENTRIES_MAX for chunk in version.chunks)
        middle = CHUNK_ENTRIES_MAX
        assert list(version.keys_from(middle)) == sorted(k for k in entries if k >= middle)
        assert version.get(middle) == entries.get(middle)


def test_one_change_leaves_all_other_chunks_the_same_objects() -> None:
    before = SortedMap.of({number: object() for number in range(100_000)})
    editor = before.edit()
    editor[50_000] = object()
    after = editor.map()
    assert len(before.chunks) > 100
    changed = [a for a, b in zip(before.chunks, after.chunks, strict=True) if a is not b]
    assert len(changed) == 1
    assert 50_000 in changed[0]


def test_what_was_made_before_stays_as_it_was_while_its_editor_continues() -> None:
    editor = SortedMap.of({1: "a"}).edit()
    editor[2] = "b"
    first = editor.map()
    editor[1] = "other"
    del editor[2]
    assert dict(first) == {1: "a", 2: "b"}
    assert dict(editor.map()) == {1: "other"}


def test_chunks_do_not_stay_behind_when_nearly_all_is_removed() -> None:
    editor = SortedMap.of(dict.fromkeys(range(50_000))).edit()
    for key in range(50_000):
        if key % 1_000:
            del editor[key]
    assert len(editor.map().chunks) < 5


def test_a_key_that_cannot_be_compared_is_not_there() -> None:
    names = SortedMap.of({f"topic-{number}": number for number in range(2_000)})
    assert names.get(None) is None
    assert None not in names
    assert names.get("topic-7") == 7


def test_a_tally_counts_a_chunk_once() -> None:
    counted: list[int] = []

    def count(values: object) -> dict[str, int]:
        counted.append(len(list(values)))  # type: ignore[call-overload]
        return {"entries": counted[-1]}

    tally: sorted_map.Tally[int] = Tally(count)
    before = SortedMap.of(dict.fromkeys(range(10_000), 0))
    assert tally.of(before) == {"entries": 10_000}
    counted.clear()
    editor = before.edit()
    editor[10_000] = 0
    assert tally.of(editor.map()) == {"entries": 10_001}
    assert len(counted) == 1
    assert counted[0] <= CHUNK_ENTRIES_MAX
