"""What a request can be refused with. Each knows its HTTP status; the body is the same for page and API."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A request that is not carried out: a status, a sentence, and what helps. ``more`` joins the JSON body."""

    status = 400

    def __init__(self, message: str, hint: str = "", *, field: str = "", status: int | None = None, **more: Any):
        super().__init__(message)
        self.message, self.hint, self.field = message, hint, field
        self.status = status or self.status
        self.more = more
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, Any]:
        told = {"error": self.message, "hint": self.hint, "field": self.field, **self.more}
        return {name: value for name, value in told.items() if value != ""}


class NotFound(Refused):
    status = 404


class Conflict(Refused):
    status = 409


class NotAllowed(Refused):
    status = 403


class NotSignedIn(Refused):
    status = 401


class TooMany(Refused):
    """Too many wrong keys from one place. ``retry_s`` says when to come again."""

    status = 429

    def __init__(self, retry_s: int):
        super().__init__(f"too many wrong keys; try again in {retry_s} s")
        self.retry_s = retry_s
        self.headers["Retry-After"] = str(retry_s)
