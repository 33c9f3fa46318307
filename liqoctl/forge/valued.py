"""What settings make of the manifests: values and manifests in, manifests out. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from apis import keys, objects
from apis.objects import Key, Object
from liqoctl.forge import values as schema
from liqoctl.forge.values import Process, Values

_PART_OF: Final = {"app.kubernetes.io/part-of": "liqo"}
_CONTROLLERS: Final = "liqo-controller-manager"
_METRICS: Final = "liqo-metrics"
"""The NetworkPolicy of ports with metrics."""
_CA_NAME: Final = "liqo-api-server-ca"
_CA_FOLDER: Final = "/etc/liqo/api-server-ca"
_CA_FILE: Final = "ca.crt"


def applied(manifests: Iterable[Object], values: Values) -> list[Object]:
    """Return ``manifests`` as ``values`` have them, and the objects that these add.

    What is added stands behind the namespace, before what mounts it.
    """
    made = [_valued(obj, values) for obj in manifests]
    if not values.api_server.ca:
        return made
    data = {_CA_FILE: values.api_server.ca}
    first = next(at for at, obj in enumerate(made) if obj["kind"] != keys.NAMESPACE.kind)
    return [*made[:first], _config_map(_CA_NAME, data), *made[first:]]


def _valued(obj: Object, values: Values) -> Object:
    if _is_process(obj):
        return _deployment(obj, values)
    if values.scraped_from and obj["metadata"]["name"] == _METRICS:
        metrics, *others = obj["spec"]["ingress"]
        chosen = {**metrics, "from": [{"namespaceSelector": {"matchLabels": values.scraped_from}}]}
        return {**obj, "spec": {**obj["spec"], "ingress": [chosen, *others]}}
    return obj


def kept(text: str) -> Object:
    """Return the ConfigMap that keeps the settings of an installation, as YAML."""
    return _config_map(schema.NAME, {schema.ENTRY: text})


def _config_map(name: str, data: Mapping[str, str]) -> Object:
    metadata = {"labels": {keys.APP_NAME: name, **_PART_OF}}
    where = Key(keys.LIQO_NAMESPACE, name)
    return objects.named(keys.CONFIG_MAP, where, metadata=metadata, data=dict(data))


def _is_process(obj: Object) -> bool:
    return obj["kind"] == keys.DEPLOYMENT.kind and obj["metadata"]["name"] in schema.PROCESSES


def _deployment(obj: Object, values: Values) -> Object:
    name = obj["metadata"]["name"]
    process: Process = getattr(values, schema.PROCESSES[name])
    labels = {**values.labels, **process.labels}
    template = obj["spec"]["template"]
    pod = _pod(template["spec"], process, values)
    if name == _CONTROLLERS:
        pod = _announcing(pod, values)
    spec = {**obj["spec"], "template": {**_labelled(template, labels), "spec": pod}}
    if process.replicas is not None:
        spec["replicas"] = process.replicas
    return {**_labelled(obj, labels), "spec": spec}


def _labelled(obj: Object, labels: Mapping[str, str]) -> Object:
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "labels": {**metadata["labels"], **labels}}}


def _pod(spec: Object, process: Process, values: Values) -> Object:
    said: Object = {
        "nodeSelector": process.node_selector,
        "tolerations": process.tolerations,
        "affinity": process.affinity,
        "priorityClassName": process.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in values.image_pull_secrets],
    }
    first, *others = spec["containers"]
    containers = [_container(first, process, values), *others]
    return {**spec, **{name: value for name, value in said.items() if value}} | {
        "containers": containers
    }


def _container(container: Object, process: Process, values: Values) -> Object:
    made = {**container, "args": with_arguments(container.get("args") or [], process.args)}
    given = {"requests": process.resources.requests, "limits": process.resources.limits}
    resources = dict(container.get("resources") or {})
    for name, amounts in given.items():
        if amounts:
            said = {resource: str(amount) for resource, amount in amounts.items()}
            resources[name] = {**(resources.get(name) or {}), **said}
    env = [*(container.get("env") or []), *_proxy(values)]
    return {**made, "resources": resources, "env": env}


def with_arguments(own: Iterable[str], given: Iterable[str]) -> list[str]:
    """Return the arguments ``own`` without the flags that ``given`` says, and then ``given``."""
    given = list(given)
    said = {_flag(argument) for argument in given}
    return [*(argument for argument in own if _flag(argument) not in said), *given]


def _flag(argument: str) -> str:
    name = argument.partition("=")[0].removeprefix("--")
    return name.removeprefix("no-")


def _proxy(values: Values) -> list[Object]:
    proxy = values.proxy
    if proxy.secret_name:
        return [_of_secret(name, proxy.secret_name) for name in ("HTTPS_PROXY", "NO_PROXY")]
    found = {"HTTPS_PROXY": proxy.https_proxy, "NO_PROXY": ",".join(proxy.no_proxy)}
    return [{"name": name, "value": value} for name, value in found.items() if value]


def _of_secret(name: str, secret: str) -> Object:
    reference = {"name": secret, "key": name, "optional": name == "NO_PROXY"}
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def _announcing(pod: Object, values: Values) -> Object:
    """Return the pod of the controllers, which tell peers where the API server is."""
    server, given = values.api_server, []
    if server.url:
        given.append(f"--api-server-address-override={server.url}")
    if server.publicly_trusted:
        given.append("--trusted-ca")
    if server.ca:
        # The name of the file changes with the authority, so that the process starts again.
        file = f"{hashlib.sha256(server.ca.encode()).hexdigest()[:16]}.crt"
        given.append(f"--ca-override={_CA_FOLDER}/{file}")
    first, *others = pod["containers"]
    container: Object = {**first, "args": with_arguments(first["args"], given)}
    if not server.ca:
        return {**pod, "containers": [container, *others]}
    mount: Object = {"name": "api-server-ca", "mountPath": _CA_FOLDER, "readOnly": True}
    items = [{"key": _CA_FILE, "path": file}]
    volume: Any = {"name": "api-server-ca", "configMap": {"name": _CA_NAME, "items": items}}
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    volumes = [*(pod.get("volumes") or []), volume]
    return {**pod, "containers": [container, *others], "volumes": volumes}
