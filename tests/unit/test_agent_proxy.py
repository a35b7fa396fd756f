"""Which proxy a connection takes."""

from __future__ import annotations

import pytest
from potato_training.worker.http_tcp import proxy_of


@pytest.mark.parametrize(("environment", "expected"), [
    ({}, None),
    ({"https_proxy": "http://p:1"}, "http://p:1"),
    ({"HTTPS_PROXY": "p:1"}, "http://p:1"),
    ({"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q"}, "http://p:1"),
    ({"http_proxy": "http://p:1"}, None),
    ({"all_proxy": "http://p:1"}, "http://p:1"),
    ({"https_proxy": ""}, None),
    ({"https_proxy": "p", "no_proxy": "*"}, None),
    ({"https_proxy": "p", "NO_PROXY": "example.org"}, None),
    ({"https_proxy": "p", "no_proxy": "a,.example.org"}, None),
    ({"https_proxy": "p", "no_proxy": "A.EXAMPLE.ORG"}, None),
    ({"https_proxy": "p", "no_proxy": "example.org:443"}, None),
    ({"https_proxy": "p", "no_proxy": "example.org:444"}, "http://p"),
    ({"https_proxy": "p", "no_proxy": "ample.org"}, "http://p"),
    ({"https_proxy": "p", "no_proxy": " , "}, "http://p"),
])
def test_the_environment_decides(environment, expected):
    assert proxy_of(environment, "https", "a.example.org", 443) == expected


def test_a_header_of_a_cgi_client_is_no_proxy():
    assert proxy_of({"HTTP_PROXY": "http://evil", "REQUEST_METHOD": "GET"}, "http", "x", 80) is None
