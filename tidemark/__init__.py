"""The face of Tidemark: command line, names for plugin authors, errors.

`tidemark.plugins` has what a storage plugin needs, `tidemark.plugins.testing` its contract,
`tidemark.errors` the errors. All other modules are Tidemark's own and may change.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tidemark-broker")
except PackageNotFoundError:  # a tree that was never installed
    __version__ = "0+unknown"
