"""The decorator of methods that override one of a base class or a protocol (PEP 698).

Such a method has its base's documentation. mypy reports one that overrides nothing. `typing` has
the decorator since Python 3.12.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override as override
else:

    def override(method):
        """Return the method as it is."""
        return method
