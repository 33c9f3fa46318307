"""Which proxy the environment names for an API server."""

import pytest

from kube import credentials

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "direct", "expected"),
    [
        ("https://milan.example:6443", "", PROXY),
        ("https://milan.example:6443", "milan.example", ""),
        ("https://milan.example:6443", ".example", ""),
        ("https://milan.example:6443", "*.example, other", ""),
        ("https://milan.example:6443", "lan.example", PROXY),
        ("https://10.1.2.3:6443", "10.0.0.0/8", ""),
        ("https://10.1.2.3:6443", "10.1.2.3", ""),
        ("https://192.0.2.1", "10.0.0.0/8,milan.example", PROXY),
        ("https://[fd00::1]:6443", "fd00::/8", ""),
        ("https://milan.example:6443", "milan.example:6443", ""),
        ("https://milan.example:6443", "milan.example:443", PROXY),
        ("https://milan.example", ".example:443", ""),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", ""),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", ""),
        ("https://[fd00::1]:6443", "fd00::1", ""),
        ("https://milan.example", "*", ""),
        ("https://127.0.0.1:6443", "", ""),
        ("https://localhost:6443", "", ""),
    ],
)
def test_a_server_is_reached_by_the_proxy_but_for_what_is_named(
    server: str, direct: str, expected: str
) -> None:
    variables = {"HTTPS_PROXY": PROXY, "NO_PROXY": direct}

    assert credentials.proxy_for(server, variables) == expected
    lower = {name.lower(): value for name, value in variables.items()}
    assert credentials.proxy_for(server, lower) == expected


def test_it_may_be_named_without_a_scheme_and_by_none() -> None:
    assert credentials.proxy_for("https://a.example", {"HTTPS_PROXY": "p:1"}) == "http://p:1"
    assert credentials.proxy_for("https://a.example", {"HTTP_PROXY": PROXY}) == ""
    assert credentials.proxy_for("https://a.example", {}) == ""
