"""The proxy that the environment names, as kubectl reads it: HTTPS_PROXY and NO_PROXY.

It is looked up once for each identity, since looking for each request costs more than the request.
"""

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy(server: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the proxy for the API server ``server``, empty if it is reached directly.

    Loopback addresses are always reached directly.
    """
    said = urlsplit(server)
    name = "HTTPS_PROXY" if said.scheme == "https" else "HTTP_PROXY"
    found = environment.get(name) or environment.get(name.lower()) or ""
    direct = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    host = (said.hostname or "").rstrip(".")
    port = said.port or (443 if said.scheme == "https" else 80)
    patterns = [one for one in map(str.strip, direct.lower().split(",")) if one]
    if not found or host == "localhost" or _is_direct(host, port, patterns):
        return ""
    return found if "://" in found else f"http://{found}"


def _is_direct(host: str, port: int, patterns: list[str]) -> bool:
    hosts = [host_ for host_, port_ in map(_parted, patterns) if port_ in {"", str(port)}]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return any(_is_named(host, one) for one in hosts)
    return address.is_loopback or any(_holds(one, address) for one in hosts)


def _parted(pattern: str) -> tuple[str, str]:
    """Return host and port of ``pattern``; the port is empty where it names none."""
    if pattern.startswith("["):
        host, _, port = pattern[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = pattern.partition(":")
    return (host, port) if port.isdecimal() else (pattern, "")


def _is_named(host: str, pattern: str) -> bool:
    domain = pattern.removeprefix("*").removeprefix(".")
    return pattern == "*" or (bool(domain) and (host == domain or host.endswith(f".{domain}")))


def _holds(pattern: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if pattern == "*":
        return True
    try:
        return address in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return False
