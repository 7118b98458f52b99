"""Cells of the damage table that no start can show, each with its reason and what proves it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tests.support.damage.table import Damage


class Proof(Enum):
    """What the directories of `life` must show where a damage cannot be."""

    EMPTY = "the file has no bytes"
    ONE_CONTENT = "the same bytes in every place, at every moment, and in another cluster"
    ONE_IN_TIME = "no moment knows another content under this name"
    NO_FILE = "it is a directory: files in it have bytes, it has none"


@dataclass(frozen=True)
class Impossible:
    """Why a damage cannot be, and what shows it."""

    why: str
    proof: Proof


_N, _O = Damage.NEIGHBOUR, Damage.OLD
_NO_BYTES = dict.fromkeys(
    (Damage.EMPTY, Damage.CUT, Damage.FLIPPED, _N, _O),
    Impossible("It never has a byte that could be cut, changed or another's.", Proof.EMPTY),
)
_IS_DIRECTORY = dict.fromkeys(
    (Damage.CUT, Damage.FLIPPED),
    Impossible("A directory has no bytes of its own; its files have rows.", Proof.NO_FILE),
)
_FORMATTED = {_O: Impossible("Only the format step writes it, once.", Proof.ONE_IN_TIME)}
_NAMED_ONCE = "is written once under its name, which says for which offset or segment it holds."
INAPPLICABLE: Mapping[str, Mapping[Damage, Impossible]] = {
    "producer snapshot": {
        _O: Impossible(f"The state below an offset {_NAMED_ONCE}", Proof.ONE_IN_TIME)
    },
    "file about to be removed": {
        _O: Impossible("It got this name when it was closed for good.", Proof.ONE_IN_TIME)
    },
    "partition directory": _IS_DIRECTORY,
    "meta.properties": _FORMATTED,
    "bootstrap.checkpoint of a log directory": _FORMATTED,
    "lock": _NO_BYTES,
    "directory of a deleted partition": _IS_DIRECTORY
    | {_O: Impossible("Its name holds an id made at the deletion.", Proof.ONE_IN_TIME)},
    "log directory": _IS_DIRECTORY,
    "meta.properties of the metadata directory": _FORMATTED,
    "bootstrap.checkpoint": _FORMATTED,
    "partition.metadata of the metadata log": {
        _O: Impossible("The topic id of the metadata log is a constant.", Proof.ONE_CONTENT)
    },
    "producer snapshot of the metadata log": {
        _O: Impossible("It lists producers; this log never has any.", Proof.ONE_CONTENT)
    },
    "metadata snapshot": {
        _O: Impossible(f"The image at an offset {_NAMED_ONCE}", Proof.ONE_IN_TIME)
    },
    "metadata log directory": _IS_DIRECTORY,
    "lock of the tier": _NO_BYTES,
    "directory of the tier's database": _IS_DIRECTORY,
    "directory of cached indexes": _IS_DIRECTORY,
    "directory of cached chunks": _IS_DIRECTORY,
    "cached indexes of remote segments": {
        _O: Impossible(f"An index of a remote segment {_NAMED_ONCE}", Proof.ONE_IN_TIME)
    },
    "cached chunks of remote segments": {
        _O: Impossible(
            "Each start empties the directory, so none is of an earlier time.", Proof.ONE_IN_TIME
        )
    },
}
"""Cells of the table that no start can show; every other cell is shown by one."""
