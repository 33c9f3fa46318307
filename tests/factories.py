"""Builders of Kubernetes objects for tests: valid for a real API server, overridden by keyword."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from apis import keys
from apis.objects import Key, Kind, Object, named

Test = TypeVar("Test", bound=Callable[..., object])


@cache
def table(name: str) -> Any:
    """Return the rows in ``tests/tables/NAME.yaml``, in its order."""
    text = (Path(__file__).parent / f"tables/{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def cases(names: str) -> Callable[[Test], Test]:
    """Parametrize a test with its rows in the table of its package, such as ``webhook.yaml``.

    They are there by its module and by its own name, both without ``test_``; by ids, where they
    have some.
    """

    def parametrized(test: Test) -> Test:
        package, module = test.__module__.split(".")[-2:]
        rows = table(package)[module.removeprefix("test_")][test.__name__.removeprefix("test_")]
        if isinstance(rows, dict):
            is_one = "," not in names
            rows = [pytest.param(*[row] if is_one else row, id=id_) for id_, row in rows.items()]
        made: Test = pytest.mark.parametrize(names, rows)(test)
        return made

    return parametrized


def made(kind: Kind, key: Key, **rest: Any) -> Object:
    """Return an object of ``kind``."""
    return named(kind, key, **rest)


def config_map(namespace: str = "default", name: str = "settings", **data: str) -> Object:
    """Return a ConfigMap that holds ``data``."""
    return named(keys.CONFIG_MAP, Key(namespace, name), data=data)


def secret(namespace: str = "default", name: str = "secret", **data: str) -> Object:
    """Return an Opaque Secret; ``data`` is base64 already."""
    return named(keys.SECRET, Key(namespace, name), type="Opaque", data=data)


def namespace(name: str, **labels: str) -> Object:
    """Return a Namespace; ``_`` and ``__`` in label names are for the caller to avoid."""
    return named(keys.NAMESPACE, Key("", name), metadata={"labels": labels})


def tenant_namespace(name: str, peer: str) -> Object:
    """Return a Namespace of what concerns the cluster ``peer``."""
    return namespace(name, **{keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: peer})


def offloading(namespace: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a NamespaceOffloading."""
    key = Key(namespace, keys.OFFLOADING_NAME)
    metadata = {"annotations": annotations or {}}
    return made(keys.NAMESPACE_OFFLOADING, key, metadata=metadata, spec=spec)


def namespace_map(key: Key, *, is_replica: bool = False, **rest: Any) -> Object:
    """Return a NamespaceMap, by its own cluster's controllers or by the replicator of another."""
    labels = {
        keys.REMOTE_CLUSTER_ID: "milan",
        keys.REPLICATION: str(not is_replica).lower(),
    }
    return named(keys.NAMESPACE_MAP, key, **{"metadata": {"labels": labels}, "spec": {}, **rest})


def condition(type_: str, status: str, reason: str = "", message: str = "") -> Object:
    """Return a condition of a status."""
    return {"type": type_, "status": status, "reason": reason, "message": message}


def node(name: str = "node", **rest: Any) -> Object:
    """Return a Node."""
    return named(keys.NODE, Key("", name), **rest)


def virtual_node(name: str = "milan", cluster_id: str = "milan") -> Object:
    """Return the Node of a VirtualNode."""
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: cluster_id}
    return node(name, metadata={"labels": labels})


def claim(namespace: str = "default", name: str = "data", *, node: str = "", **rest: Any) -> Object:
    """Return a claim of our storage class; with ``node``, that its first pod goes there."""
    asked = {keys.STORAGE_PROVISIONERS[0]: keys.STORAGE_PROVISIONER, keys.SELECTED_NODE: node}
    metadata = {"annotations": asked if node else {}, **rest.pop("metadata", {})}
    spec = {
        "storageClassName": keys.VIRTUAL_STORAGE_CLASS,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **rest,
    }
    key = Key(namespace, name)
    return named(keys.PERSISTENT_VOLUME_CLAIM, key, metadata=metadata, spec=spec)


def pod_spec(image: str = "nginx", **rest: Any) -> Object:
    """Return a pod's spec with one container ``main``."""
    return {
        "containers": [{"name": "main", "image": image}],
        "automountServiceAccountToken": False,
        **rest,
    }


def pod(
    namespace: str = "default",
    name: str = "web",
    *,
    spec: Object | None = None,
    metadata: Object | None = None,
    **rest: Any,
) -> Object:
    """Return a Pod; ``rest`` are further top-level fields such as ``status``."""
    key = Key(namespace, name)
    return named(keys.POD, key, metadata=metadata or {}, spec=spec or pod_spec(), **rest)


def offloaded_spec(node: str, **rest: Any) -> Object:
    """Return the spec of a pod that is on the virtual node ``node``."""
    tolerations = [{"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}]
    return pod_spec(nodeName=node, tolerations=tolerations, **rest)


def service(namespace: str = "default", name: str = "web", port: int = 80, **spec: Any) -> Object:
    """Return a ClusterIP Service with one port."""
    ports = [{"name": "http", "port": port, "protocol": "TCP"}]
    spec = {"selector": {"app": name}, "ports": ports, **spec}
    return named(keys.SERVICE, Key(namespace, name), spec=spec)


def deployment(namespace: str = "default", name: str = "web", replicas: int = 1) -> Object:
    """Return a Deployment of one container."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return named(keys.DEPLOYMENT, Key(namespace, name), spec=spec)


def ingress(namespace: str, name: str = "web", host: str = "shop.example") -> Object:
    """Return an Ingress of one host to the Service ``web``."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    rules = [{"host": host, "http": {"paths": [path]}}]
    return named(keys.INGRESS, Key(namespace, name), spec={"rules": rules})
