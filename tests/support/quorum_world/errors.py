"""What a simulation ends with when something does not hold."""


class Violation(AssertionError):
    """An invariant is broken.

    Attributes:
        rule: the invariant as a sentence; the same for every breach of it.
    """

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule, self._what = rule, what

    def __reduce__(self) -> tuple[type["Violation"], tuple[str, str]]:
        """It comes from another process, too."""
        return Violation, (self.rule, self._what)
