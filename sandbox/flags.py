"""The command lines of a cluster's components. Source: the reference of each component."""

from pathlib import Path

from sandbox.layout import Files, Listening, Site

ISSUER = "https://kubernetes.default.svc.cluster.local"
UNBRAKED = ("--kube-api-qps=1000", "--kube-api-burst=2000")
"""Of their clients: by default a ReplicaSet makes 20 pods a second, and one would measure that."""


def etcd(files: Files, at: Listening, *, unsafe: bool = False) -> list[str]:
    """Return etcd's flags; ``unsafe`` trades durability for speed, which a result must say."""
    peer = f"http://127.0.0.1:{at.etcd_peer_port}"
    return [
        f"--data-dir={files.data}",
        "--name=default",
        f"--listen-client-urls={at.etcd}",
        f"--advertise-client-urls={at.etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
        *(["--unsafe-no-fsync"] if unsafe else []),
    ]


def apiserver(files: Files, at: Listening) -> list[str]:
    """Return kube-apiserver's flags."""
    pki = files.pki
    return [
        f"--etcd-servers={at.etcd}",
        f"--bind-address={at.address}",
        f"--advertise-address={at.address}",
        f"--secure-port={at.port}",
        f"--service-cluster-ip-range={at.service_cidr}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged",
        "--enable-aggregator-routing",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet.key'}",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy.key'}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        f"--audit-policy-file={files.config / 'audit.yaml'}",
        f"--audit-log-path={files.audit}",
    ]


def controller_manager(site: Site) -> list[str]:
    """Return kube-controller-manager's flags."""
    files, slot = site.files, site.slot
    return [
        *_identity(files, "kube-controller-manager"),
        *UNBRAKED,
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--root-ca-file={files.pki / 'ca.crt'}",
        f"--service-account-private-key-file={files.pki / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={files.pki / 'ca.crt'}",
        f"--cluster-signing-key-file={files.pki / 'ca.key'}",
        f"--requestheader-client-ca-file={files.pki / 'front-proxy-ca.crt'}",
        "--allocate-node-cidrs",
        f"--cluster-cidr={slot.pod_cidr}",
        f"--service-cluster-ip-range={slot.service_cidr}",
        "--node-cidr-mask-size=16",  # as the pod network has it: there is one node
        "--configure-cloud-routes=false",
        "--resource-quota-sync-period=15s",  # kinds of new CRDs are counted only then
        f"--cluster-name={slot.cluster}",
    ]


def scheduler(site: Site) -> list[str]:
    """Return kube-scheduler's flags."""
    return [
        *_identity(site.files, "kube-scheduler"),
        *UNBRAKED,
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ]


def alone(kubeconfig: Path, port: int) -> list[str]:
    """Return the flags of a component that acts as the administrator, and is the only one."""
    options = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [
        *(f"--{option}={kubeconfig}" for option in options),
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]


def proxy(site: Site) -> list[str]:
    """Return kube-proxy's flags."""
    return [f"--config={site.files.config / 'kube-proxy.yaml'}"]


def kubelet(site: Site) -> list[str]:
    """Return the kubelet's flags; the rest is in its configuration document."""
    return [
        f"--config={site.files.config / 'kubelet.yaml'}",
        f"--kubeconfig={site.files.identity('kubelet')}",
        f"--hostname-override={site.slot.node}",
        f"--node-ip={site.slot.address}",
        f"--root-dir={site.disk / 'kubelet'}",
    ]


def containerd(site: Site) -> list[str]:
    """Return containerd's flags."""
    return ["--config", str(site.files.config / "containerd.toml")]


def coredns(site: Site) -> list[str]:
    """Return CoreDNS's flags."""
    return ["-conf", str(site.files.config / "Corefile")]


def _identity(files: Files, name: str) -> list[str]:
    kubeconfig = files.identity(name)
    options = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [f"--{option}={kubeconfig}" for option in options]
