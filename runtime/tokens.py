"""Bearer tokens: 256 random bits, kept as SHA-256 only, found by it, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal

from .store import Store

RUN: Literal["run"] = "run"
BACKEND: Literal["backend"] = "backend"

_NOBODYS = "0" * 64  #: compared where no row is found


def issue(store: Store, kind: str, name: str) -> str:
    """A new token for a run or a backend; the one before it is worth nothing from now on."""
    token = secrets.token_urlsafe(32)
    store.put_token(kind, name, digest(token))
    return token


def owner(store: Store, token: str | None) -> tuple[Literal["run", "backend"], str] | None:
    """(kind, name) of whom the token belongs to, or None.

    No token at all is looked for as well, and takes the same time. The ledger's index finds the digest, however
    many there are. How long that takes could at most tell how a stored digest begins; no token follows from
    that, nor from the whole digest.
    """
    wanted = digest(token or "")
    row = store.token(wanted)
    if not hmac.compare_digest(row["sha256"] if row else _NOBODYS, wanted) or row is None:
        return None
    return RUN if row["kind"] == RUN else BACKEND, row["name"]


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
