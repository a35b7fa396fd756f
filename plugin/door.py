"""Who may come in where Potato is the host: its own roles, its own sign-in, its own look at where writes come from."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import flask

from ..runtime.shapes import text
from ..server.door import SAFE, Door, Who
from ..server.errors import NotAllowed
from . import names


class PotatoDoor(Door):
    """Asks Potato about the current request. Nothing of the standalone server's own door is used."""

    def __init__(self) -> None:
        pass

    def check_host(self) -> None:
        """Potato goes by any name; see ``admit`` for the one case where the name matters."""

    def sign_in_at(self) -> str:
        """The page where Potato asks for its key."""
        return f"{flask.request.script_root}/admin"

    def admit(self) -> Who:
        """By what right the request comes: ``potato``. Raises NotAllowed."""
        request, session = flask.request, flask.session
        roles, permission = names.roles(), names.admin_permission()
        if not roles.check(permission, request, session):
            raise NotAllowed(
                "Admin authentication required", "sign in on Potato's admin page, then come back here",
                sign_in_at=self.sign_in_at(),
            )
        if not _by_key_or_role(roles, permission, request, session) and not _asks_this_machine():
            # Only `debug: true` let it in. A page somewhere may let its own name point to this machine, and would
            # then pass for the person sitting at it.
            raise NotAllowed(
                "without a key this machine must be asked as localhost (debug: true)", "send the key as X-API-Key"
            )
        if request.method not in SAFE:
            self.check_origin(None)
        return "potato"

    def person(self) -> str:
        """Potato's user; without one whoever holds the key."""
        name = flask.session.get("username")
        if isinstance(name, str) and name:
            return text(name, 80)
        return "admin key" if names.roles().has_valid_admin_key(flask.request, flask.session) else ""

    def check_origin(self, who: Any) -> None:
        """Raises NotAllowed for a write that another site's page may have sent."""
        site = flask.request.headers.get("Sec-Fetch-Site")
        if not names.is_same_origin() or site not in (None, "same-origin", "none"):
            raise NotAllowed("Cross-origin request rejected")

    def sign_in(self, key: str, response: flask.Response) -> bool:
        return False

    def sign_out(self, response: flask.Response) -> None:
        pass


def _by_key_or_role(roles: Any, permission: Any, request: Any, session: Any) -> bool:
    if roles.has_valid_admin_key(request, session):
        return True
    name = session.get("username")
    return bool(name) and bool(roles.has_permission(name, permission, session.get("sso_claims")))


def _asks_this_machine() -> bool:
    name = urlsplit(flask.request.host_url).hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
