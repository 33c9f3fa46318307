"""How Services, Ingresses and EndpointSlices are reflected.

The provider allocates a Service's addresses and ports itself, its own controller serves an Ingress,
and it finds the pods that run there by the selector of the Service. So an EndpointSlice says only
what is elsewhere. Addresses are the same everywhere, unless an IP fabric joins the clusters: then
pods go by their own, which the provider maps, and what is elsewhere by that of its IP object.
"""

from collections.abc import Callable, Iterable
from typing import Final

from apis import keys, networks, objects, reflection, reflectionpolicy
from apis.objects import Key, Object
from apis.offloading import MappedNamespace
from apis.providerpolicy import LOAD_BALANCER, OUTWARD, AllowedReflection
from apis.reflectionpolicy import NotReflected
from reflector.kinds import contract, fields
from reflector.kinds.contract import Input, KindReflection, ReflectionContext, RemoteObjectOptions

SERVICE_FIELDS: Final = fields.sent(keys.SERVICE, "spec.")
OUTWARD_FIELDS: Final = (
    "allocateLoadBalancerNodePorts",
    "externalTrafficPolicy",
    "loadBalancerClass",
    "loadBalancerSourceRanges",
)
"""Fields that a Service of type ClusterIP must not have."""
PORT_FIELDS: Final = fields.sent(keys.SERVICE, "spec.ports[].")
HEADLESS: Final = "None"
_WITHOUT_ADDRESS: Final = "ExternalName"


def remote_service(local: Object, context: ReflectionContext) -> Object:
    """Return the twin of the Service ``local``.

    Source: docs/parity.md § 6.5.
    """
    have = objects.spec(local)
    spec = {name: have[name] for name in SERVICE_FIELDS if have.get(name) is not None}
    force = objects.annotations(local).get(keys.FORCE_REMOTE_NODE_PORT, "").lower() == "true"
    if have.get("ports"):
        spec["ports"] = [_port(port, force_node_port=force) for port in have["ports"]]
    if have.get("clusterIP") == HEADLESS:
        spec["clusterIP"] = HEADLESS
    if have.get("externalName"):
        spec["externalName"] = _external_name(have["externalName"], context.pair)
    spec |= _load_balancer_class(have, context.settings)
    if _refused(spec, context.offers):
        spec = _inside(spec)
    return contract.remote_object(keys.SERVICE, local, context, spec=spec)


def service_lacks(local: Object, context: ReflectionContext) -> str:
    """Return what the provider does not take: its type, annotations; empty for nothing."""
    have = objects.spec(local)
    wanted = {"type": have.get("type"), **_load_balancer_class(have, context.settings)}
    refused, where = _refused(wanted, context.offers), context.pair.destination
    inside = f"its type on {where} is ClusterIP: {where} offers no {refused}" if refused else ""
    return "; ".join(filter(None, (inside, contract.unsent(keys.SERVICE, local, context))))


def _refused(spec: Object, offers: AllowedReflection | None) -> str:
    """Return what of a twin with the type and class of ``spec`` the provider does not offer."""
    type_ = spec.get("type") or ""
    if offers is None or type_ not in OUTWARD:
        return ""
    classes = offers.load_balancer_classes
    if type_ not in offers.service_types:
        return f"type {type_} (spec.serviceTypes of its ProviderPolicy)"
    class_ = spec.get("loadBalancerClass", "")
    if type_ == LOAD_BALANCER and classes is not None and class_ not in classes:
        named = f"of class {class_}" if class_ else "without a class"
        return f"load balancer {named}, only of class {', '.join(sorted(classes)) or 'none'}"
    return ""


def _inside(spec: Object) -> Object:
    """Return ``spec`` for a Service that is reached from inside of its cluster only."""
    kept = {name: value for name, value in spec.items() if name not in OUTWARD_FIELDS}
    if "ports" in spec:
        kept["ports"] = [{**port, "nodePort": 0} for port in spec["ports"]]
    return {**kept, "type": "ClusterIP"}


def _external_name(name: str, pair: MappedNamespace) -> str:
    """Return ``name`` as it is, a Service of the own namespace as that of the twin."""
    service, dot, rest = name.partition(f".{pair.local_namespace}.svc")
    is_own = dot and (not rest or rest.startswith("."))
    return f"{service}.{pair.remote_namespace}.svc{rest}" if is_own else name


def _port(port: Object, *, force_node_port: bool) -> Object:
    """Return ``port`` for the provider: 0 asks for no node port, leaving it out for any."""
    kept = {name: port[name] for name in PORT_FIELDS if port.get(name) is not None}
    if not port.get("nodePort"):
        return {**kept, "nodePort": 0}
    return {**kept, "nodePort": port["nodePort"]} if force_node_port else kept


def _load_balancer_class(spec: Object, settings: RemoteObjectOptions) -> Object:
    offered = settings.enable_load_balancer and settings.load_balancer_class
    if spec.get("type") == "LoadBalancer" and offered:
        return {"loadBalancerClass": settings.load_balancer_class}
    return {}


def shown_service(wanted: Object) -> Object:
    """Return ``wanted`` without the node ports that the provider is asked to choose."""
    spec = wanted["spec"]
    ports = [
        {name: value for name, value in port.items() if name != "nodePort" or value}
        for port in spec.get("ports") or []
    ]
    return {**wanted, "spec": {**spec, "ports": ports}}


def is_service_fixed(wanted: Object, found: Object) -> bool:
    """Whether one of the two is headless: a Service stays so, unless it has no address at all."""
    specs = (wanted["spec"], found["spec"])
    if any(spec.get("type") == _WITHOUT_ADDRESS for spec in specs):
        return False
    return len({spec.get("clusterIP") == HEADLESS for spec in specs}) > 1


SERVICE_REFLECTION: Final = KindReflection(
    reflection.SERVICE,
    remote_service,
    shown=shown_service,
    is_fixed=is_service_fixed,
    lacks=service_lacks,
)


# Ingresses ----------------------------------------------------------------------------------------

INGRESS_FIELDS: Final = fields.sent(keys.INGRESS, "spec.")


def remote_ingress(local: Object, context: ReflectionContext) -> Object:
    """Return the twin of the Ingress ``local``: its class is one of the provider's.

    Source: docs/parity.md § 6.7.
    """
    have = objects.spec(local)
    spec = {name: have[name] for name in INGRESS_FIELDS if have.get(name)}
    if context.settings.enable_ingress and context.settings.ingress_class:
        spec["ingressClassName"] = context.settings.ingress_class
    made = contract.remote_object(keys.INGRESS, local, context, spec=spec)
    made["metadata"].get("annotations", {}).pop(keys.INGRESS_CLASS, None)
    return made


INGRESS_REFLECTION: Final = KindReflection(
    reflection.INGRESS, remote_ingress, lacks=contract.lacks(keys.INGRESS)
)


# EndpointSlices -----------------------------------------------------------------------------------

SLICE_FIELDS: Final = fields.sent(keys.ENDPOINT_SLICE, "endpoints[].")


def shadow_endpoint_slice(local: Object, context: ReflectionContext) -> Object:
    """Return the ShadowEndpointSlice of the EndpointSlice ``local``.

    Source: docs/parity.md § 6.6.

    Raises:
        NotYetError: an address has no IP object, or one without a remapped address.
    """
    template = {
        "addressType": local["addressType"],
        "endpoints": [_endpoint(each, context) for each in _elsewhere(local, context)],
        "ports": local.get("ports") or [],
    }
    made = contract.remote_object(
        keys.SHADOW_ENDPOINT_SLICE, local, context, spec={"template": template}
    )
    made["metadata"]["labels"][keys.ENDPOINT_SLICE_MANAGED_BY] = keys.ENDPOINT_SLICE_MANAGER
    return made


def slice_stays(local: Object, context: ReflectionContext) -> NotReflected | None:
    """Return why ``local`` has no twin: as its Service, unless it says itself.

    Raises:
        ContradictionError: it carries both annotations.
    """
    service = reflectionpolicy.service_of(local)
    found = context.lister.get(keys.SERVICE, service) if service else None
    is_needed = any(True for _ in _elsewhere(local, context))
    return reflectionpolicy.slice_stays(local, found, context.policy, is_needed=is_needed)


def _elsewhere(local: Object, context: ReflectionContext) -> Iterable[Object]:
    """Yield the endpoints that are not on the provider; those on unknown nodes are not known."""
    for endpoint in local.get("endpoints") or []:
        name = endpoint.get("nodeName")
        node: contract.Labelled | None = (
            context.lister.get(keys.NODE, Key("", name)) if name else None
        )
        if not name or (node and not node.is_node_of(context.pair.destination)):
            yield endpoint


def _endpoint(endpoint: Object, context: ReflectionContext) -> Object:
    made = {name: endpoint[name] for name in SLICE_FIELDS if endpoint.get(name)}
    made["addresses"] = [_reached(address, context) for address in endpoint["addresses"]]
    made["nodeName"] = context.pair.origin
    ready = (endpoint.get("conditions") or {}).get("ready")
    if ready is not None:
        made["conditions"] = {"ready": ready}
    if target := endpoint.get("targetRef"):
        made["targetRef"] = {**target, "kind": f"Remote{target.get('kind', '')}"}
    return made


def _reached(address: str, context: ReflectionContext) -> str:
    pods = context.settings.local_pods
    if not pods or networks.contains(pods, address):
        return address
    known: Iterable[Object] = context.lister.each(keys.IP)
    for one in known:
        given = objects.status(one).get("ip")
        if given and objects.spec(one).get("ip") == address:
            return str(given)
    raise reflectionpolicy.NotYetError(
        f"address {address} is of no pod here, and no IP of ipam.liqo.io in namespace "
        f"{context.pair.local_namespace} says how it is reached: create one with spec.ip {address}"
    )


def _of_ip(old: Object | None, new: Object | None, context: ReflectionContext) -> Iterable[Key]:
    addresses = {objects.spec(each).get("ip") for each in (old, new) if each}
    return _that(
        context,
        lambda each: any(
            not addresses.isdisjoint(one["addresses"]) for one in each["endpoints"] or ()
        ),
    )


def _of_service(
    old: Object | None, new: Object | None, context: ReflectionContext
) -> Iterable[Key]:
    changed = new or old
    if changed is None or _says_the_same(old, new):
        return []
    service = objects.key_of(changed)
    return _that(context, lambda each: reflectionpolicy.service_of(each) == service)


def _says_the_same(old: Object | None, new: Object | None) -> bool:
    return bool(old and new) and objects.annotations(old or {}) == objects.annotations(new or {})


def _of_node(
    old: contract.Labelled | None, new: contract.Labelled | None, context: ReflectionContext
) -> Iterable[Key]:
    changed = new or old
    if changed is None or (new and new.says_the_same(old)):
        return []
    name = changed.metadata.name
    return _that(
        context, lambda each: any(one.get("nodeName") == name for one in each["endpoints"] or ())
    )


def _that(context: ReflectionContext, is_about: Callable[[Object], bool]) -> list[Key]:
    """Return the slices of which ``is_about`` is true, and those that the cache has in outline.

    An outline, of a large one, lacks ``endpoints`` and the label of its Service.
    """
    slices = context.lister.each(keys.ENDPOINT_SLICE)
    return [objects.key_of(each) for each in slices if "endpoints" not in each or is_about(each)]


ENDPOINT_SLICE_REFLECTION: Final = KindReflection(
    reflection.ENDPOINT_SLICE,
    shadow_endpoint_slice,
    lacks=contract.lacks(keys.SHADOW_ENDPOINT_SLICE),
    stays=slice_stays,
    inputs=(
        Input(keys.SERVICE, _of_service),
        Input(keys.NODE, _of_node, shape=contract.Labelled),
        Input(keys.IP, _of_ip, is_needed=lambda it: bool(it.local_pods), may_be_unknown=True),
    ),
)
