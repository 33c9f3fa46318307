"""The twin of a Service: the provider allocates its addresses and ports itself."""

from typing import Final

from apis import keys, objects, reflection
from apis.objects import Object
from apis.offloading import MappedNamespace
from apis.providerpolicy import LOAD_BALANCER, OUTWARD, AllowedReflection
from reflector.forge import fields, twins
from reflector.forge.contract import Forge, Scene, Settings

COPIED: Final = fields.sent(keys.SERVICE, "spec.")
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


def twin(local: Object, scene: Scene) -> Object:
    """Return the twin of the Service ``local``.

    Source: docs/parity.md § 6.5.
    """
    have = objects.spec(local)
    spec = {name: have[name] for name in COPIED if have.get(name) is not None}
    force = objects.annotations(local).get(keys.FORCE_REMOTE_NODE_PORT, "").lower() == "true"
    if have.get("ports"):
        spec["ports"] = [_port(port, force_node_port=force) for port in have["ports"]]
    if have.get("clusterIP") == HEADLESS:
        spec["clusterIP"] = HEADLESS
    if have.get("externalName"):
        spec["externalName"] = _external_name(have["externalName"], scene.pair)
    spec |= _load_balancer_class(have, scene.settings)
    if _refused(spec, scene.offers):
        spec = _inside(spec)
    return twins.of(keys.SERVICE, local, scene, spec=spec)


def lacks(local: Object, scene: Scene) -> str:
    """Return what the provider does not take: its type, annotations; empty for nothing."""
    have = objects.spec(local)
    wanted = {"type": have.get("type"), **_load_balancer_class(have, scene.settings)}
    refused, where = _refused(wanted, scene.offers), scene.pair.destination
    inside = f"its type on {where} is ClusterIP: {where} offers no {refused}" if refused else ""
    return "; ".join(filter(None, (inside, twins.unsent(keys.SERVICE, local, scene))))


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


def _load_balancer_class(spec: Object, settings: Settings) -> Object:
    offered = settings.enable_load_balancer and settings.load_balancer_class
    if spec.get("type") == "LoadBalancer" and offered:
        return {"loadBalancerClass": settings.load_balancer_class}
    return {}


def shown(wanted: Object) -> Object:
    """Return ``wanted`` without the node ports that the provider is asked to choose."""
    spec = wanted["spec"]
    ports = [
        {name: value for name, value in port.items() if name != "nodePort" or value}
        for port in spec.get("ports") or []
    ]
    return {**wanted, "spec": {**spec, "ports": ports}}


def is_fixed(wanted: Object, found: Object) -> bool:
    """Whether one of the two is headless: a Service stays so, unless it has no address at all."""
    specs = (wanted["spec"], found["spec"])
    if any(spec.get("type") == _WITHOUT_ADDRESS for spec in specs):
        return False
    return len({spec.get("clusterIP") == HEADLESS for spec in specs}) > 1


FORGE: Final = Forge(reflection.SERVICE, twin, shown=shown, is_fixed=is_fixed, lacks=lacks)
