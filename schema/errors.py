"""Errors that a person can mend, as opposed to a broken machine."""


class UserError(Exception):
    """A mistake in what was asked for. Front doors print it in one line, without a traceback.

    ``hint`` says what to do next; it may be empty.
    """

    #: What a command that ends with this exits with; 2 in a subclass for wrong usage.
    exit_code = 1

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(UserError):
    """A command was asked for something it does not have."""

    exit_code = 2
