"""What a server is started with, from the config, the environment and the command line."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..schema.config import Config
from ..schema.errors import UserError
from ..worker.jobdir import write_private

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Settings:
    """``prefix`` is "" or ``/name``; ``names`` are the host names that count as ours, in lower case."""

    admin_key: str
    key_is_ours: bool  #: it was made for this start, and is printed
    secret: str  #: signs the cookie
    debug: bool
    names: frozenset[str]
    any_address: bool  #: bound to every address of this machine, so each of them is ours
    prefix: str
    behind_proxy: bool
    secure_cookie: bool


def settings(
    config: Config, where: Path, *, host: str, names: tuple[str, ...] = (), prefix: str | None = None,
    behind_proxy: bool = False, environ: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings of a server that is bound to ``host``; ``where`` is the private folder for its secret.

    Raises UserError for a prefix that is none, and for an ``admin_api_key`` that names a variable which is
    not set.
    """
    key = _key(config, environ)
    prefix = prefix if prefix is not None else environ.get("POTATO_URL_PREFIX", "")
    return Settings(
        admin_key=key or secrets.token_urlsafe(32),
        key_is_ours=not key,
        secret=_text(config, "secret_key", environ) or _secret(where / "cookie.secret"),
        debug=config.debug,
        names=_names(host, names),
        any_address=host in ("0.0.0.0", "::", ""),  # noqa: S104
        prefix=_prefix(prefix),
        behind_proxy=behind_proxy or environ.get("POTATO_PROXY_FIX") == "1",
        secure_cookie=str(config.raw.get("session_cookie_secure", "")).lower() in ("true", "yes", "on"),
    )


def _key(config: Config, environ: Mapping[str, str]) -> str:
    return _text(config, "admin_api_key", environ) or environ.get("POTATO_ADMIN_API_KEY", "")


def _text(config: Config, name: str, environ: Mapping[str, str]) -> str:
    written = config.raw.get(name)
    if not isinstance(written, str):
        return ""

    def value(found: re.Match[str]) -> str:
        if not environ.get(found[1]):
            raise UserError(
                f"{config.path.name}: {name} is ${{{found[1]}}}, and {found[1]} is not set",
                f"export {found[1]}, or leave {name} out",
            )
        return environ[found[1]]

    return _VARIABLE.sub(value, written)


def _prefix(text: str) -> str:
    text = text.strip().rstrip("/")
    if text and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text):
        raise UserError(f"--prefix {text}: a prefix looks like /name")
    return text


def _names(host: str, more: tuple[str, ...]) -> frozenset[str]:
    import socket

    ours = {"localhost", "127.0.0.1", "::1", host, *more}
    if host not in ("127.0.0.1", "localhost", "::1"):  # others can reach us, and call us by name
        ours |= {socket.gethostname(), socket.getfqdn()}
    return frozenset(name.lower().strip("[]").rstrip(".") for name in ours if name)


def _secret(path: Path) -> str:
    """Kept, so that a restart signs nobody out."""
    try:
        kept = path.read_text("utf-8").strip()
    except OSError:
        kept = ""
    if len(kept) < 32:
        kept = secrets.token_urlsafe(32)
        write_private(str(path), kept + "\n")
    return kept
