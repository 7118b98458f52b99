"""Cells of the damage table that no start can show, each with its reason."""

from collections.abc import Mapping

from tests.support.damage.table import Damage

_N, _O = Damage.NEIGHBOUR, Damage.OLD
_NO_BYTES = dict.fromkeys(
    (Damage.EMPTY, Damage.CUT, Damage.FLIPPED, _N, _O),
    "It never has a byte that could be cut, changed or another's.",
)
_IS_DIRECTORY = dict.fromkeys(
    (Damage.CUT, Damage.FLIPPED),
    "A directory has no bytes of its own; its files have rows.",
)
_FORMATTED = {_O: "Only the format step writes it, once."}
_NAMED_ONCE = "is written once under its name, which says for which offset or segment it holds."
INAPPLICABLE: Mapping[str, Mapping[Damage, str]] = {
    "producer snapshot": {_O: f"The state below an offset {_NAMED_ONCE}"},
    "file about to be removed": {_O: "It got this name when it was closed permanently."},
    "partition directory": _IS_DIRECTORY,
    "meta.properties": _FORMATTED,
    "bootstrap.checkpoint of a log directory": _FORMATTED,
    "lock": _NO_BYTES,
    "directory of a deleted partition": _IS_DIRECTORY
    | {_O: "Its name holds an id made at the deletion."},
    "log directory": _IS_DIRECTORY,
    "meta.properties of the metadata directory": _FORMATTED,
    "bootstrap.checkpoint": _FORMATTED,
    "partition.metadata of the metadata log": {
        _O: "The topic id of the metadata log is a constant."
    },
    "producer snapshot of the metadata log": {_O: "It lists producers; this log never has any."},
    "metadata snapshot": {_O: f"The image at an offset {_NAMED_ONCE}"},
    "metadata log directory": _IS_DIRECTORY,
    "lock of the tier": _NO_BYTES,
    "directory of the tier's database": _IS_DIRECTORY,
    "directory of cached indexes": _IS_DIRECTORY,
    "directory of cached chunks": _IS_DIRECTORY,
    "cached indexes of remote segments": {_O: f"An index of a remote segment {_NAMED_ONCE}"},
    "cached chunks of remote segments": {
        _O: "Each start empties the directory, so none is of an earlier time."
    },
}
"""Cells of the table that no start can show; every other cell is shown by one."""
