"""Which version of Tidemark runs."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Return the version of the installed package; `0+unknown` where none is installed."""
    try:
        return version("tidemark-broker")
    except PackageNotFoundError:
        return "0+unknown"
