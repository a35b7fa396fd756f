"""Bearer tokens: 256 random bits, kept as SHA-256 only, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal

from .store import Store

RUN: Literal["run"] = "run"
BACKEND: Literal["backend"] = "backend"


def issue(store: Store, kind: str, name: str) -> str:
    """A new token for a run or a backend; the one before it is worth nothing from now on."""
    token = secrets.token_urlsafe(32)
    store.put_token(kind, name, digest(token))
    return token


def owner(store: Store, token: str | None) -> tuple[Literal["run", "backend"], str] | None:
    """(kind, name) of whom the token belongs to, or None.

    Every stored digest is compared, also after a hit and for no token at all, so that the time
    tells nothing.
    """
    wanted = digest(token or "")
    found: tuple[Literal["run", "backend"], str] | None = None
    for row in store.tokens():
        if hmac.compare_digest(row["sha256"], wanted):
            found = (RUN if row["kind"] == RUN else BACKEND, row["name"])
    return found


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
