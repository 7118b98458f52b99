"""Says in one line which extra is missing, before an import fails with a stack."""

from importlib.util import find_spec

from pipeline.errors import MissingPackageError


def need(extra: str, *packages: str) -> None:
    """Look whether packages can be imported here; nothing is imported.

    Args:
        extra: of `tidemark-broker`, brings them.
        packages: top-level names.

    Raises:
        MissingPackageError: says what to install.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{', '.join(missing)} is not installed here: pip install 'tidemark-broker[{extra}]'"
        )
