"""Settings that an installation keeps, and what they make of the manifests. Pure.

Source: ruling 29 for passwords of proxies.
"""

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from apis import keys, naming, objects
from apis.objects import Key, Object
from apis.resources import parse_quantity

NAME: Final = "liqo-values"
"""The ConfigMap in the namespace of pyliqo that keeps them, below the key ``values.yaml``."""
ENTRY: Final = "values.yaml"
_RESERVED: Final = frozenset({"app.kubernetes.io/name", "app.kubernetes.io/part-of"})

Text = Annotated[str, Meta(min_length=1, max_length=1024)]
Argument = Annotated[str, Meta(pattern=r"^--[a-z][a-z0-9-]*(=.*)?$")]


def _says(description: str) -> Meta:
    return Meta(description=description)


Amounts = Annotated[
    dict[str, str | int | float], _says("Amounts, merged with those of the manifest")
]


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What none of the fields names is refused."""


class ResourceValues(_Strict, frozen=True):
    """What the containers of a process request, and are limited to."""

    requests: Amounts = {}
    limits: Amounts = {}


class ProcessValues(_Strict, frozen=True):
    """One Deployment of pyliqo."""

    args: Annotated[
        list[Argument],
        _says("Flags of the process; each replaces the manifest's flag of that name"),
    ] = []
    replicas: Annotated[
        Annotated[int, Meta(ge=1, le=20)] | None,
        _says("Number of pods, 1 to 20 [as in the manifest]"),
    ] = None
    resources: Annotated[
        ResourceValues, _says("Requests and limits of its container, resource by resource")
    ] = ResourceValues()
    node_selector: Annotated[
        dict[str, str], _says("Labels of the nodes that its pods may run on")
    ] = {}
    tolerations: Annotated[list[dict[str, Any]], _says("Tolerations, as in a PodSpec")] = []
    affinity: Annotated[
        dict[str, Any], _says("Affinity, as in a PodSpec; replaces the manifest's")
    ] = {}
    priority_class_name: Annotated[
        str, _says("PriorityClass of its pods [the webhook: system-cluster-critical]")
    ] = ""
    labels: Annotated[dict[str, str], _says("Labels of the Deployment and of its pods")] = {}


class ProxyValues(_Strict, frozen=True):
    """By which proxy the processes reach API servers of peers."""

    https_proxy: Annotated[str, _says("`http://` or `https://` URL without a password")] = ""
    no_proxy: Annotated[
        list[Text], _says("Names, domains and networks that are reached directly")
    ] = []
    secret_name: Annotated[
        str, _says("Secret in namespace `liqo` with the keys `HTTPS_PROXY` and `NO_PROXY`")
    ] = ""


class ApiServerValues(_Strict, frozen=True):
    """Where peers find the API server of this cluster."""

    url: Annotated[
        str, _says("`https://` URL [the address of a control-plane node, port 6443]")
    ] = ""
    ca: Annotated[
        str, _says("PEM text of who signs its certificate [that of the service accounts]")
    ] = ""
    publicly_trusted: Annotated[
        bool, _says("Its certificate is publicly trusted: peers are given no CA")
    ] = False


class Values(_Strict, frozen=True):
    """All settings that an installation keeps."""

    image: Annotated[str, _says("Image of all processes, by tag or digest (`name@sha256:...`)")] = (
        ""
    )
    image_pull_secrets: Annotated[
        list[Text], _says("Secrets in namespace `liqo` to pull the image with")
    ] = []
    labels: Annotated[dict[str, str], _says("Labels of all Deployments and of their pods")] = {}
    proxy: Annotated[ProxyValues, _says("How peers are reached from here")] = ProxyValues()
    api_server: Annotated[ApiServerValues, _says("Where peers find this cluster")] = (
        ApiServerValues()
    )
    scraped_from: Annotated[
        dict[str, str],
        _says("Labels of the namespaces whose pods may read metrics [every namespace]"),
    ] = {}
    webhook: Annotated[ProcessValues, _says("`liqo-webhook`")] = ProcessValues()
    controller_manager: Annotated[ProcessValues, _says("`liqo-controller-manager`")] = (
        ProcessValues()
    )
    certs: Annotated[ProcessValues, _says("`liqo-certs`")] = ProcessValues()
    metric_agent: Annotated[ProcessValues, _says("`liqo-metric-agent`")] = ProcessValues()


PROCESSES: Final = {
    "liqo-webhook": "webhook",
    keys.CONTROLLER_MANAGER: "controller_manager",
    "liqo-certs": "certs",
    "liqo-metric-agent": "metric_agent",
}
"""Which field has the settings of the Deployment of that name."""


def merged(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``older`` with what ``newer`` says: mappings key by key, all else as a whole.

    A null takes a setting back.
    """
    made = dict(older)
    for name, value in newer.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping):
            below = made.get(name)
            made[name] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            made[name] = value
    return made


def parsed(found: Any) -> Values:
    """Return what the document ``found`` says.

    Raises:
        ValueError: it says what cannot be; the message names the field and what to do.
    """
    if not isinstance(found, Mapping):
        said = f"a mapping is needed, such as 'webhook: {{replicas: 3}}', not {found!r:.80}"
        raise ValueError(said)  # noqa: TRY004  # of the user's file, like all that is wrong in it
    for complaint in _unknown(found, Values, ""):
        raise ValueError(complaint)
    try:
        values = msgspec.convert(found, Values)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise ValueError(f"{where.rstrip('`') or 'values'}: {what}") from None
    for complaint in _complaints(values):
        raise ValueError(complaint)
    return values


def _unknown(found: Any, struct: type[msgspec.Struct], path: str) -> Iterator[str]:
    known = {each.encode_name: each.type for each in msgspec.structs.fields(struct)}
    for name, value in found.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)
            yield (
                f"{path}{name}: there is no such setting; the nearest is {path}{near[0]} "
                f"(all of them: docs/values.md)"
            )
        elif isinstance(value, Mapping) and (below := struct_of(known[name])):
            yield from _unknown(value, below, f"{path}{name}.")


def struct_of(annotated: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a field of this type holds, if it does."""
    held = getattr(annotated, "__origin__", annotated)
    return held if isinstance(held, type) and issubclass(held, msgspec.Struct) else None


def _complaints(values: Values) -> Iterator[str]:
    yield from _of_labels("labels", values.labels)
    yield from _of_proxy(values.proxy)
    yield from _of_api_server(values.api_server)
    for name in values.image_pull_secrets:
        if not naming.is_dns_subdomain(name):
            yield f"imagePullSecrets: {name!r} is not the name of a Secret"
    if any(character.isspace() for character in values.image):
        yield f"image: {values.image!r} has a space; use name:tag or name@sha256:digest"
    names = {each.name: each.encode_name for each in msgspec.structs.fields(Values)}
    for field in PROCESSES.values():
        process: ProcessValues = getattr(values, field)
        path = names[field]
        yield from _of_labels(f"{path}.labels", process.labels)
        yield from _of_labels(f"{path}.nodeSelector", process.node_selector, reserved=frozenset())
        yield from _of_amounts(f"{path}.resources.requests", process.resources.requests)
        yield from _of_amounts(f"{path}.resources.limits", process.resources.limits)


def _of_labels(
    path: str, labels: Mapping[str, str], reserved: frozenset[str] = _RESERVED
) -> Iterator[str]:
    for name, value in labels.items():
        if not naming.is_qualified_name(name):
            yield f"{path}: {name!r} is not the key of a label"
        elif not naming.is_label_value(value):
            yield f"{path}.{name}: {value!r} is not the value of a label"
        elif name in reserved:
            yield f"{path}.{name}: Deployments select their pods by it, so it stays; leave it out"


def _of_amounts(path: str, amounts: Mapping[str, Any]) -> Iterator[str]:
    for name, amount in amounts.items():
        try:
            parse_quantity(str(amount))
        except ValueError as error:
            yield f"{path}.{name}: {error}"


def _of_proxy(proxy: ProxyValues) -> Iterator[str]:
    if proxy.secret_name and proxy.https_proxy:
        yield "proxy: name secretName or httpsProxy, not both"
    if not proxy.https_proxy:
        return
    said = urlsplit(proxy.https_proxy)
    if said.password is not None or said.username is not None:
        yield (
            "proxy.httpsProxy: it has a user or password, which everybody may read in a ConfigMap; "
            "keep the URL in a Secret of namespace liqo, below the key HTTPS_PROXY, and name that "
            "Secret in proxy.secretName"
        )
    elif said.scheme not in {"http", "https"} or not said.hostname:
        yield "proxy.httpsProxy: an http:// or https:// URL is needed"


def _of_api_server(server: ApiServerValues) -> Iterator[str]:
    said = urlsplit(server.url)
    if server.url and (said.scheme != "https" or not said.hostname or "@" in said.netloc):
        yield f"apiServer.url: {server.url!r:.80} is not an https:// URL of a host"
    if server.ca and "-----BEGIN CERTIFICATE-----" not in server.ca:
        yield "apiServer.ca: PEM text with BEGIN CERTIFICATE is needed"
    if server.ca and server.publicly_trusted:
        yield "apiServer: give ca or publiclyTrusted, not both"


# What settings make of the manifests: values and manifests in, manifests out ----------------------

_PART_OF: Final = {"app.kubernetes.io/part-of": "liqo"}
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
    return _config_map(NAME, {ENTRY: text})


def _config_map(name: str, data: Mapping[str, str]) -> Object:
    metadata = {"labels": {keys.APP_NAME: name, **_PART_OF}}
    where = Key(keys.LIQO_NAMESPACE, name)
    return objects.named(keys.CONFIG_MAP, where, metadata=metadata, data=dict(data))


def _is_process(obj: Object) -> bool:
    return obj["kind"] == keys.DEPLOYMENT.kind and obj["metadata"]["name"] in PROCESSES


def _deployment(obj: Object, values: Values) -> Object:
    name = obj["metadata"]["name"]
    process: ProcessValues = getattr(values, PROCESSES[name])
    labels = {**values.labels, **process.labels}
    template = obj["spec"]["template"]
    pod = _pod(template["spec"], process, values)
    if name == keys.CONTROLLER_MANAGER:
        pod = _announcing(pod, values)
    spec = {**obj["spec"], "template": {**_labelled(template, labels), "spec": pod}}
    if process.replicas is not None:
        spec["replicas"] = process.replicas
    return {**_labelled(obj, labels), "spec": spec}


def _labelled(obj: Object, labels: Mapping[str, str]) -> Object:
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "labels": {**metadata["labels"], **labels}}}


def _pod(spec: Object, process: ProcessValues, values: Values) -> Object:
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


def _container(container: Object, process: ProcessValues, values: Values) -> Object:
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
