"""Who may come in: the Host that was asked for, where a write comes from, and whose request it is.

Host names are checked before anything else. A page somewhere may let its own name point to this machine
(DNS rebinding) and would otherwise pass for a request of a person sitting at it, which ``debug: true``
gives every right.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from typing import Literal
from urllib.parse import urlsplit

import flask
from itsdangerous import BadData, URLSafeTimedSerializer

from .attempts import Attempts
from .errors import NotAllowed, NotSignedIn
from .settings import Settings

#: How long a browser stays signed in.
COOKIE_S = 7 * 24 * 3600
SAFE = ("GET", "HEAD", "OPTIONS")
Who = Literal["key", "loopback", "cookie", "potato"]

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?\Z")
#: Any of these means that the request came through a proxy, so its address says nothing of who asks.
_FORWARDED = ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "Via")


class Door:
    """Decides for one server. Every method looks at the current request of Flask."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._key = settings.admin_key.encode()
        self._attempts = Attempts()
        secret = settings.secret
        self._signer = URLSafeTimedSerializer(
            secret, salt="potato-training-login", signer_kwargs={"digest_method": hashlib.sha256}
        )
        # The cookie names the key without telling it: another key signs everybody out.
        self._mark = hmac.new(secret.encode(), b"key " + self._key, hashlib.sha256).hexdigest()[:32]
        # Cookies know no ports: each project has a name of its own, so that two servers do not share one.
        name = hmac.new(secret.encode(), b"name", hashlib.sha256).hexdigest()[:8]
        self.cookie_name = f"potato_training_{name}"

    def person(self) -> str:
        """Who sent a request that was admitted, as far as the door knows people by name."""
        return ""

    # --- the Host --------------------------------------------------------------------------------

    def check_host(self) -> None:
        """Raises NotAllowed for a Host header that does not name this server."""
        host = flask.request.environ.get("HTTP_HOST", "")
        found = _HOST.match(host)
        if not found or not self._is_ours(found[1].strip("[]").lower().rstrip(".")):
            raise NotAllowed(
                "this server does not go by that name (Host header)",
                "start it with --allow-host NAME, or behind a proxy that keeps the Host",
            )

    def _is_ours(self, name: str) -> bool:
        return name in self._settings.names or (self._settings.any_address and _is_an_address_here(name))

    # --- where a write comes from ------------------------------------------------------------------

    def check_origin(self, who: Who | None) -> None:
        """Raises NotAllowed for a write that another site's page may have sent."""
        headers = flask.request.headers
        origin, site, referer = headers.get("Origin"), headers.get("Sec-Fetch-Site"), headers.get("Referer")
        from_here = (
            (origin is None or self._same(origin))
            and (site is None or site == "same-origin")
            and (origin is not None or referer is None or self._same(referer))
        )
        if not from_here:
            raise NotAllowed("a write from another site is refused")
        if who == "cookie" and origin is None and site is None:
            raise NotAllowed("a write with a cookie must say where it comes from (Origin or Sec-Fetch-Site)")

    def _same(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            given = (parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme))
            ours = urlsplit(flask.request.host_url)
            return given == (ours.scheme, ours.hostname, ours.port or _PORTS[ours.scheme])
        except ValueError:
            return False

    # --- who ---------------------------------------------------------------------------------------

    def who(self) -> Who | None:
        """By what right the request comes. Raises NotSignedIn for a wrong key, TooMany after several."""
        request = flask.request
        given = request.headers.get("X-API-Key")
        if given is not None and self._is_key(given):
            return "key"
        if self._settings.debug and _is_loopback(request):
            return "loopback"
        if given is not None:
            raise NotSignedIn("X-API-Key is not the admin key", "it is admin_api_key of the config")
        return "cookie" if self._has_cookie() else None

    def admit(self) -> Who:
        """``who``, and the origin of writes. Raises NotSignedIn for nobody."""
        who = self.who()
        if flask.request.method not in SAFE:
            self.check_origin(who)
        if who is None:
            raise NotSignedIn("sign in first", "send the admin key as X-API-Key, or sign in on the page")
        return who

    def _is_key(self, given: str) -> bool:
        address = flask.request.remote_addr or ""
        self._attempts.check(address)
        right = hmac.compare_digest(
            hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest(), hashlib.sha256(self._key).digest()
        )
        if not right:
            self._attempts.failed(address)
        return right

    def sign_in_at(self) -> str:
        """Where one signs in, when it is not on a page of ours."""
        return ""

    # --- the cookie ----------------------------------------------------------------------------------

    def sign_in(self, key: str, response: flask.Response) -> bool:
        """Gives the browser its cookie when the key is right. Raises TooMany."""
        if not self._is_key(key.strip()):
            return False
        response.set_cookie(
            self.cookie_name, str(self._signer.dumps(self._mark)), max_age=COOKIE_S, httponly=True, samesite="Lax",
            secure=flask.request.is_secure or self._settings.secure_cookie, path=flask.request.script_root or "/",
        )
        return True

    def sign_out(self, response: flask.Response) -> None:
        response.delete_cookie(self.cookie_name, path=flask.request.script_root or "/", httponly=True, samesite="Lax")

    def _has_cookie(self) -> bool:
        try:
            said = self._signer.loads(flask.request.cookies.get(self.cookie_name, ""), max_age=COOKIE_S)
        except BadData:
            return False
        return isinstance(said, str) and hmac.compare_digest(said.encode(), self._mark.encode())


_PORTS = {"http": 80, "https": 443}


def _is_loopback(request: flask.Request) -> bool:
    if any(name in request.headers for name in _FORWARDED):
        return False
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:  # a unix socket has no address, and is no loopback
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_an_address_here(name: str) -> bool:
    """True for an address that this machine has: only those can be bound."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    if address.is_unspecified or address.is_multicast:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((name, 0))
        except OSError:
            return False
    return True
