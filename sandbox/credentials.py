"""The keys and certificates of a control plane, and the kubeconfigs made of them."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certs import pki
from sandbox import documents
from sandbox.layout import Files, Listening, Site

LIFETIME: Final = dt.timedelta(days=365)
_NAMES: Final = (
    "kubernetes", "kubernetes.default", "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local", "localhost",
)  # fmt: skip


@dataclass(frozen=True)
class Authorities:
    """Who signs in one cluster: everything, and the aggregator's own requests."""

    cluster: pki.Keypair
    front_proxy: pki.Keypair
    now: dt.datetime

    def client(self, user: str, *groups: str) -> pki.Keypair:
        """Return the identity of ``user``."""
        return pki.issue(
            self.cluster, common_name=user, organizations=groups, client=True,
            now=self.now, lifetime=LIFETIME,
        )  # fmt: skip

    def server(self, name: str, dns: Iterable[str], ips: Iterable[str]) -> pki.Keypair:
        """Return the serving certificate for the given names and addresses."""
        return pki.issue(
            self.cluster, common_name=name, dns=tuple(dns), ips=tuple(ips), server=True,
            now=self.now, lifetime=LIFETIME,
        )  # fmt: skip

    def aggregator(self) -> pki.Keypair:
        """Return the identity by which the API server passes requests on."""
        return pki.issue(
            self.front_proxy, common_name="front-proxy", client=True,
            now=self.now, lifetime=LIFETIME,
        )  # fmt: skip


def create(files: Files, at: Listening, *, name: str, now: dt.datetime) -> Authorities:
    """Write what etcd and kube-apiserver need, and the administrator's kubeconfig."""
    authorities = Authorities(
        pki.new_ca(f"{name}-ca", now=now, lifetime=LIFETIME, has_identifier=False),
        pki.new_ca(f"{name}-front-proxy-ca", now=now, lifetime=LIFETIME, has_identifier=False),
        now,
    )
    for folder in (files.pki, files.logs, files.config, files.state / "identities"):
        folder.mkdir(parents=True, exist_ok=True)
    ips = {at.address, at.service_address, "127.0.0.1"}
    _write_pair(files.pki / "ca", authorities.cluster)
    _write_pair(files.pki / "front-proxy-ca", authorities.front_proxy)
    _write_pair(files.pki / "front-proxy", authorities.aggregator())
    _write_pair(files.pki / "apiserver", authorities.server("kube-apiserver", _NAMES, sorted(ips)))
    reader = authorities.client("kube-apiserver-kubelet-client", "system:masters")
    _write_pair(files.pki / "apiserver-kubelet", reader)
    key = pki.new_key()
    write(files.pki / "service-accounts.key", key)
    write(files.pki / "service-accounts.pub", pki.public_key(key))
    admin = authorities.client("admin", "system:masters")
    _write_pair(files.pki / "admin", admin)
    kubeconfig = _kubeconfig(name, at.server, authorities, "admin", admin)
    write(files.kubeconfig, kubeconfig)
    return authorities


def create_components(site: Site, authorities: Authorities) -> None:
    """Write the identities of the other components, and the kubelet's serving certificate."""
    slot = site.slot
    serving = authorities.server(f"system:node:{slot.node}", [slot.node], [slot.address])
    _write_pair(site.files.pki / "kubelet", serving)
    identities = {
        "kube-controller-manager": authorities.client("system:kube-controller-manager"),
        "kube-scheduler": authorities.client("system:kube-scheduler"),
        "kube-proxy": authorities.client("system:kube-proxy"),
        "kubelet": authorities.client(f"system:node:{slot.node}", "system:nodes"),
        "coredns": authorities.client("system:coredns"),
    }
    for name, identity in identities.items():
        text = _kubeconfig(slot.cluster, slot.server, authorities, name, identity)
        write(site.files.identity(name), text)


def write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read; it appears whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.rename(path)


def _write_pair(stem: Path, pair: pki.Keypair) -> None:
    write(stem.with_name(f"{stem.name}.crt"), pair.certificate)
    write(stem.with_name(f"{stem.name}.key"), pair.key)


def _kubeconfig(
    cluster: str, server: str, authorities: Authorities, user: str, pair: pki.Keypair
) -> bytes:
    text = documents.kubeconfig(
        cluster=cluster, server=server, ca=authorities.cluster.certificate,
        user=user, pair=(pair.certificate, pair.key),
    )  # fmt: skip
    return text.encode()
