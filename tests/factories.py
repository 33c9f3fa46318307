"""Builders of Kubernetes objects for tests: valid for a real API server, overridden by keyword."""

from typing import Any

from apis import keys
from apis.objects import Key, Kind, Object, named


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


def offloading(namespace: str, annotations: dict[str, str] | None = None) -> Object:
    """Return a NamespaceOffloading."""
    key = Key(namespace, keys.OFFLOADING_NAME)
    metadata = {"annotations": annotations or {}}
    return made(keys.NAMESPACE_OFFLOADING, key, metadata=metadata, spec={})


def node(name: str = "node", **rest: Any) -> Object:
    """Return a Node."""
    return named(keys.NODE, Key("", name), **rest)


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
