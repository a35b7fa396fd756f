"""Connections over TCP: TLS with a CA of one's own, and the proxies that the environment names."""

from __future__ import annotations

import base64
import http.client
import ssl
from typing import Any, Mapping, Optional
from urllib.parse import unquote, urlsplit

from .http_client import Connect

#: What OpenSSL says when the answer to its greeting is HTTP.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class Untrusted(OSError):
    """The server's certificate does not verify. Never passed over: the sentence says what can be done."""


def tcp_connect(environment: Mapping[str, str], ca_file: Optional[str] = None) -> Connect:
    """The ``connect`` of a Client for http:// and https:// URLs. Raises OSError for a CA file that is none."""
    context: Optional[ssl.SSLContext] = None
    if ca_file is not None:
        context = ssl.create_default_context(cafile=ca_file)

    def connect(address: str, timeout: float) -> http.client.HTTPConnection:
        parts = urlsplit(address)
        secure = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        proxy = proxy_of(environment, parts.scheme, host, port)
        if secure:
            return _secure(host, port, proxy, context or ssl.create_default_context(), timeout)
        if proxy is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        through = urlsplit(proxy)
        connection = _Relayed(through.hostname or "", through.port or 80, timeout=timeout)
        connection.origin = "http://%s" % parts.netloc.rpartition("@")[2]
        connection.credentials = _credentials(proxy)
        return connection

    return connect


def proxy_of(environment: Mapping[str, str], scheme: str, host: str, port: int) -> Optional[str]:
    """The proxy's URL for a server, or None. The lower-case names win, as in curl."""
    if _is_exempt(environment.get("no_proxy", environment.get("NO_PROXY", "")), host, port):
        return None
    for name in (scheme + "_proxy", scheme.upper() + "_PROXY", "all_proxy", "ALL_PROXY"):
        if name == "HTTP_PROXY" and "REQUEST_METHOD" in environment:
            continue  # in a CGI script that one is a header of the client's
        value = environment.get(name)
        if value:
            return value if "://" in value else "http://" + value
    return None


def _is_exempt(words: str, host: str, port: int) -> bool:
    for word in words.replace(" ", ",").split(","):
        name, _, its_port = word.strip().lower().partition(":")
        name = name.lstrip(".")
        if word.strip() == "*" or (
            name and (host == name or host.endswith("." + name)) and its_port in ("", str(port))
        ):
            return True
    return False


def _credentials(proxy: str) -> Mapping[str, str]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    pair = "%s:%s" % (unquote(parts.username), unquote(parts.password or ""))
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


class _Relayed(http.client.HTTPConnection):
    """Plain HTTP through a proxy: the request names the whole URL."""

    origin = ""
    credentials: Mapping[str, str] = {}

    def putrequest(self, method: str, url: str, *arguments: Any, **options: Any) -> None:
        super().putrequest(method, self.origin + url, *arguments, **options)
        for name, value in self.credentials.items():
            self.putheader(name, value)


class _Secure(http.client.HTTPSConnection):
    def connect(self) -> None:
        try:
            super().connect()
        except ssl.SSLCertVerificationError as error:
            why = getattr(error, "verify_message", "") or str(error)
            raise Untrusted(
                "the server's certificate is not trusted (%s); --ca-file names the file of a CA of your own" % why
            ) from None
        except ssl.SSLError as error:
            if error.reason not in _NO_TLS:
                raise
            raise OSError("there is no TLS at that address; does the server go by http:// there?") from None


def _secure(
    host: str, port: int, proxy: Optional[str], context: ssl.SSLContext, timeout: float
) -> http.client.HTTPSConnection:
    if proxy is None:
        return _Secure(host, port, timeout=timeout, context=context)
    through = urlsplit(proxy)
    connection = _Secure(through.hostname or "", through.port or 80, timeout=timeout, context=context)
    connection.set_tunnel(host, port, dict(_credentials(proxy)))
    return connection
