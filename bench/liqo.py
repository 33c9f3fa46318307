"""Liqo's own binaries, as they are started for the arms ``liqo-default`` and ``liqo-unlimited``.

Networking is off, resource enforcement and storage too; all else is as its charts have it. What
each process is given is decided here; ``bench.takeover`` starts them.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from apis import keys, naming
from apis.objects import Key, Kind, Object, named
from bench import counters, load
from bench.settings import LIQO_VARIABLE, UNLIMITED
from bench.stage import CONSUMER, PROVIDER

NODE: Final = "bench-liqo"
SECRET: Final = "kubeconfig-bench-liqo"  # noqa: S105  # a name, not a secret
WEBHOOKS: Final = "bench-liqo"
AUTHENTICATION: Final = Key(keys.LIQO_NAMESPACE, "authentication-keys")
"""The Secret that Liqo's controller manager makes when it starts."""
COMMIT: Final = "COMMIT"
"""File beside the binaries that says what they were built from."""
DEFINITIONS: Final = "crds"
"""Folder beside the binaries with the definitions of Liqo's kinds that pyliqo does not have."""
REQUIRED: Final = ("ipam.liqo.io", "networking.liqo.io")
"""Groups without which Liqo's processes do not start, even with networking off."""
PORT: Final = 19443
KUBELET_PORT: Final = 19250
RAISED: Final = ("--client-qps=100000", "--client-max-burst=100000")
_CERTIFICATES: Final = Path("k8s-webhook-server", "serving-certs")
"""Where Liqo's webhook looks for its certificate, below the folder of temporary files."""
_TEMPLATE: Final = f"{keys.LIQO_NAMESPACE}/virtual-kubelet-default"
"""Has to be named; the VirtualNode here brings its own."""
_UNUSED: Final = ("--metrics-address=0",)
_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods"]}  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A process of Liqo: which binary, for which cluster, with what."""

    binary: str
    cluster: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def component(self) -> str:
        """What it is called where processes are counted."""
        return counters.LIQO[self.binary]


def complete(folder: Path) -> Path:
    """Return ``folder`` if everything that the arms need is in it.

    Raises:
        RuntimeError: something is missing.
    """
    missing = [name for name in counters.LIQO if not (folder / name).is_file()]
    if missing:
        raise RuntimeError(
            f"{LIQO_VARIABLE} names {folder}, which has no {', '.join(missing)}: put Liqo's "
            f"binaries {', '.join(counters.LIQO)} there, or unset it"
        )
    absent = [name for name in REQUIRED if not any((folder / DEFINITIONS).glob(f"{name}_*.yaml"))]
    if absent:
        raise RuntimeError(
            f"{folder / DEFINITIONS} has no definitions of {', '.join(absent)}: copy those of "
            "Liqo's chart there, or Liqo's processes do not start"
        )
    return folder


def commit(folder: Path) -> str:
    """Return what the binaries were built from, as the file ``COMMIT`` says."""
    file = folder / COMMIT
    return file.read_text(encoding="utf-8").strip() if file.is_file() else "unknown"


def definitions(folder: Path) -> list[Object]:
    """Return the definitions of the kinds that pyliqo does not have, marked as the run's."""
    files = sorted((folder / DEFINITIONS).glob("*.yaml"))
    found = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    for definition in found:
        definition["metadata"].setdefault("labels", {})[load.PART] = "true"
    return found


def commands(arm: str, addresses: Mapping[str, str], home: Path) -> Iterator[Command]:
    """Yield the processes of both clusters but the virtual kubelet; ``home`` has certificates."""
    limits = RAISED if arm == UNLIMITED else ()
    for cluster in addresses:
        identity = (f"--cluster-id={cluster}", *limits, *_UNUSED)
        place = (f"--liqo-namespace={keys.LIQO_NAMESPACE}", "--health-probe-address=0")
        temporary = {"TMPDIR": str(home / cluster)}
        webhook = (f"--webhook-port={PORT}", f"--vk-options-default-template={_TEMPLATE}")
        yield Command("webhook", cluster, (*identity, *place, *webhook), temporary)
        manager = ("--networking-enabled=false", "--default-limits-enforcement=None")
        yield Command("liqo-controller-manager", cluster, (*identity, *place, *manager), temporary)
        yield Command("crd-replicator", cluster, identity, temporary)


def kubelet(arm: str, addresses: Mapping[str, str], home: Path) -> Command:
    """Return the virtual kubelet, as its Deployment would start it, but for what is switched off.

    Its serving certificate is its own: nobody asks for logs here, and so nothing has to be signed.
    """
    tenant = naming.tenant_namespace(PROVIDER)
    arguments = (
        f"--home-cluster-id={CONSUMER}", f"--foreign-cluster-id={PROVIDER}", f"--nodename={NODE}",
        f"--node-ip={addresses[CONSUMER]}", f"--listen-port={KUBELET_PORT}",
        f"--tenant-namespace={tenant}", f"--liqo-namespace={keys.LIQO_NAMESPACE}",
        f"--foreign-kubeconfig-secret-name={SECRET}", "--certificate-type=self-signed",
        "--node-check-network=false", "--disable-ip-reflection",
        *(RAISED if arm == UNLIMITED else ()),
    )  # fmt: skip
    environment = {
        "POD_NAME": NODE,
        "POD_NAMESPACE": tenant,
        "VIRTUALNODE_NAME": NODE,
        "TMPDIR": str(home / CONSUMER),
    }
    return Command("virtual-kubelet", CONSUMER, arguments, environment)


def certificates(home: Path, cluster: str) -> Path:
    """Return the folder in which the webhook of ``cluster`` looks for its certificate."""
    return home / cluster / _CERTIFICATES


def secret(kubeconfig: str) -> Object:
    """Return the Secret from which the virtual kubelet reads its way to the provider."""
    data = {keys.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    key = Key(naming.tenant_namespace(PROVIDER), SECRET)
    labels = {keys.REMOTE_CLUSTER_ID: PROVIDER, load.PART: "true"}
    return named(keys.SECRET, key, metadata={"labels": labels}, data=data)


def virtual_node(spec: Mapping[str, Any]) -> Object:
    """Return the VirtualNode: ``spec`` is that of every arm; its Deployment starts nothing."""
    tenant = naming.tenant_namespace(PROVIDER)
    labels = {"app": NODE}
    pod = {"containers": [{"name": "none", "image": "localhost/bench:none"}]}
    template = {
        "metadata": {"name": f"vk-{NODE}", "namespace": tenant},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    whole = {**spec, "createNode": True, "template": template}
    metadata = {"labels": {load.PART: "true", keys.REMOTE_CLUSTER_ID: PROVIDER}}
    return named(keys.VIRTUAL_NODE, Key(tenant, NODE), metadata=metadata, spec=whole)


def url(address: str, path: str) -> str:
    """Return where the webhook of the cluster with ``address`` answers."""
    return f"https://{address}:{PORT}{path}"


def webhooks(address: str, ca: bytes) -> dict[Kind, Object]:
    """Return what registers the webhooks that a pod meets on its way, for one cluster."""
    client = partial(_client, address, base64.b64encode(ca).decode())
    shadows = _of_group("shadowpods", "CREATE", "UPDATE", "DELETE")
    offloadings = _of_group("namespaceoffloadings", "CREATE", "UPDATE")
    found = {
        keys.MUTATING_WEBHOOKS: [
            {
                **client("pod.mutate.liqo.io", "/mutate/pod"),
                "rules": [_PODS],
                "namespaceSelector": {"matchLabels": {keys.SCHEDULING_ENABLED: "true"}},
            },
            {**client("shadowpod.mutate.liqo.io", "/mutate/shadowpods"), "rules": [shadows]},
        ],
        keys.VALIDATING_WEBHOOKS: [
            {
                **client("nsoff.validate.liqo.io", "/validate/namespace-offloading"),
                "rules": [offloadings],
            },
            {**client("shadowpod.validate.liqo.io", "/validate/shadowpods"), "rules": [shadows]},
        ],
    }
    metadata = {"labels": {load.PART: "true"}}
    return {
        kind: named(kind, Key("", WEBHOOKS), metadata=metadata, webhooks=of_kind)
        for kind, of_kind in found.items()
    }


def _client(address: str, bundle: str, name: str, path: str) -> Object:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"url": url(address, path), "caBundle": bundle},
    }


def _of_group(plural: str, *operations: str) -> Object:
    return {"apiGroups": [keys.OFFLOADING_GROUP], "apiVersions": ["v1beta1"],
            "operations": list(operations), "resources": [plural]}  # fmt: skip
