"""Settings that an installation keeps: what may be said, and how several files become one. Pure.

Source: ruling 29 for passwords of proxies.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from apis import naming, quantity

NAME: Final = "liqo-values"
"""The ConfigMap in the namespace of pyliqo that keeps them, below the key ``values.yaml``."""
ENTRY: Final = "values.yaml"
_RESERVED: Final = frozenset({"app.kubernetes.io/name", "app.kubernetes.io/part-of"})

Text = Annotated[str, Meta(min_length=1, max_length=1024)]
Argument = Annotated[str, Meta(pattern=r"^--[a-z][a-z0-9-]*(=.*)?$")]


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What none of the fields names is refused."""


class Resources(_Strict, frozen=True):
    """What the containers of a process request, and are limited to."""

    requests: Annotated[
        dict[str, str | int | float], Meta(description="Amounts, merged with those of the manifest")
    ] = {}
    limits: Annotated[
        dict[str, str | int | float], Meta(description="Amounts, merged with those of the manifest")
    ] = {}


class Process(_Strict, frozen=True):
    """One Deployment of pyliqo."""

    args: Annotated[
        list[Argument],
        Meta(description="Flags of the process; each replaces the manifest's flag of that name"),
    ] = []
    replicas: Annotated[
        Annotated[int, Meta(ge=1, le=20)] | None,
        Meta(description="Number of pods, 1 to 20 [as in the manifest]"),
    ] = None
    resources: Annotated[
        Resources, Meta(description="Requests and limits of its container, resource by resource")
    ] = Resources()
    node_selector: Annotated[
        dict[str, str], Meta(description="Labels of the nodes that its pods may run on")
    ] = {}
    tolerations: Annotated[
        list[dict[str, Any]], Meta(description="Tolerations, as in a PodSpec")
    ] = []
    affinity: Annotated[
        dict[str, Any], Meta(description="Affinity, as in a PodSpec; replaces the manifest's")
    ] = {}
    priority_class_name: Annotated[
        str, Meta(description="PriorityClass of its pods [the webhook: system-cluster-critical]")
    ] = ""
    labels: Annotated[
        dict[str, str], Meta(description="Labels of the Deployment and of its pods")
    ] = {}


class Proxy(_Strict, frozen=True):
    """By which proxy the processes reach API servers of peers."""

    https_proxy: Annotated[
        str, Meta(description="`http://` or `https://` URL without a password")
    ] = ""
    no_proxy: Annotated[
        list[Text], Meta(description="Names, domains and networks that are reached directly")
    ] = []
    secret_name: Annotated[
        str,
        Meta(description="Secret in namespace `liqo` with the keys `HTTPS_PROXY` and `NO_PROXY`"),
    ] = ""


class ApiServer(_Strict, frozen=True):
    """Where peers find the API server of this cluster."""

    url: Annotated[
        str, Meta(description="`https://` URL [the address of a control-plane node, port 6443]")
    ] = ""
    ca: Annotated[
        str,
        Meta(description="PEM text of who signs its certificate [that of the service accounts]"),
    ] = ""
    publicly_trusted: Annotated[
        bool, Meta(description="Its certificate is publicly trusted: peers are given no CA")
    ] = False


class Values(_Strict, frozen=True):
    """All settings that an installation keeps."""

    image: Annotated[
        str, Meta(description="Image of all processes, by tag or digest (`name@sha256:...`)")
    ] = ""
    image_pull_secrets: Annotated[
        list[Text], Meta(description="Secrets in namespace `liqo` to pull the image with")
    ] = []
    labels: Annotated[
        dict[str, str], Meta(description="Labels of all Deployments and of their pods")
    ] = {}
    proxy: Annotated[Proxy, Meta(description="How peers are reached from here")] = Proxy()
    api_server: Annotated[ApiServer, Meta(description="Where peers find this cluster")] = (
        ApiServer()
    )
    scraped_from: Annotated[
        dict[str, str],
        Meta(description="Labels of the namespaces whose pods may read metrics [every namespace]"),
    ] = {}
    webhook: Annotated[Process, Meta(description="`liqo-webhook`")] = Process()
    controller_manager: Annotated[Process, Meta(description="`liqo-controller-manager`")] = (
        Process()
    )
    certs: Annotated[Process, Meta(description="`liqo-certs`")] = Process()
    metric_agent: Annotated[Process, Meta(description="`liqo-metric-agent`")] = Process()


PROCESSES: Final = {
    "liqo-webhook": "webhook",
    "liqo-controller-manager": "controller_manager",
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
    for field in PROCESSES.values():
        process: Process = getattr(values, field)
        path = msgspec.structs.fields(Values)[_position(field)].encode_name
        yield from _of_labels(f"{path}.labels", process.labels)
        yield from _of_labels(f"{path}.nodeSelector", process.node_selector, reserved=frozenset())
        yield from _of_amounts(f"{path}.resources.requests", process.resources.requests)
        yield from _of_amounts(f"{path}.resources.limits", process.resources.limits)


def _position(field: str) -> int:
    return [each.name for each in msgspec.structs.fields(Values)].index(field)


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
            quantity.parse(str(amount))
        except ValueError as error:
            yield f"{path}.{name}: {error}"


def _of_proxy(proxy: Proxy) -> Iterator[str]:
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


def _of_api_server(server: ApiServer) -> Iterator[str]:
    said = urlsplit(server.url)
    if server.url and (said.scheme != "https" or not said.hostname or "@" in said.netloc):
        yield f"apiServer.url: {server.url!r:.80} is not an https:// URL of a host"
    if server.ca and "-----BEGIN CERTIFICATE-----" not in server.ca:
        yield "apiServer.ca: PEM text with BEGIN CERTIFICATE is needed"
    if server.ca and server.publicly_trusted:
        yield "apiServer: give ca or publiclyTrusted, not both"
