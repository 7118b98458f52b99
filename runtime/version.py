"""The running version of Tidemark, and the commands that install its extras."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the version of the installed package; `0+unknown` where none is installed."""
    try:
        return version("tidemark-broker")
    except PackageNotFoundError:
        return "0+unknown"


def install_command(extra: str) -> str:
    """The command that installs an extra of `tidemark-broker`.

    It names a clone, as the documentation does: the package is on no index.
    """
    return f"pip install 'DIRECTORY-OF-THE-CLONE[{extra}]'"
