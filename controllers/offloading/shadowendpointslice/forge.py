"""The EndpointSlice that a ShadowEndpointSlice asks for, as far as the provider allows it."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apis import allowlist, keys, networks, objects
from apis.networks import ClusterAddresses, Remap
from apis.objects import Object

_IPV4: Final = "IPv4"
_NEEDED: Final = ("NetworkConnectionStatus", "APIServerStatus")
_WELL: Final = frozenset({"Established", "Ready", "None", "Disabled", ""})


@dataclass(frozen=True)
class EndpointAddresses:
    """By which addresses a consumer's endpoints are reached, and which it may not name."""

    own: ClusterAddresses = field(default_factory=ClusterAddresses)
    fabric: Remap | None = None
    """What the Configuration of the consumer says; None where no IP fabric joins the clusters."""
    is_pods: Callable[[str], bool] = lambda _: False
    """Whether an address is that of a pod of this cluster."""

    def of(self, address: str, type_: str = _IPV4) -> str:
        """Return how ``address`` is reached, "" if the consumer may not name it.

        It may not name this cluster's own, nor a text that is not the one spelling of an address of
        ``type_``, nor, with a fabric, what is in none of the networks that were agreed on; without
        one, not what each node has for itself (docs/parity.md SEC-A16).
        """
        reached = self.fabric.of(address) if self.fabric else address
        if any(networks.read_address(each, type_) is None for each in (address, reached)):
            return ""
        one = ipaddress.ip_address(reached)
        ends = networks.reached_addresses(one)
        if networks.is_closed(one, self.own) or any(self.is_pods(str(end)) for end in ends):
            return ""
        if self.fabric is None:
            return "" if any(map(networks.is_bridge_address, ends)) else reached
        return reached if self.fabric.reaches(reached) else ""


def endpoint_slice(shadow: Object, reach: EndpointAddresses, *, is_reachable: bool) -> Object:
    """Return the EndpointSlice of ``shadow``, owned by it.

    Endpoints at addresses of this cluster are left out: a consumer could draw requests to nodes,
    to the API server or to other tenants' pods (docs/parity.md SEC-A16). So are those that are no
    IP addresses in their one spelling: an API server may read another address out of them than we.
    """
    template = _template(shadow)
    labels = {
        **objects.labels(shadow),
        keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_ENDPOINT_SLICE,
        keys.ENDPOINT_SLICE_MANAGED_BY: keys.ENDPOINT_SLICE_MANAGER,
    }
    left_out = {keys.LAST_APPLIED, keys.APPLIED, keys.DIRECT_CONNECTIONS_DATA}
    annotations = {
        name: value
        for name, value in allowlist.plain(objects.annotations(shadow)).items()
        if name not in left_out
    }
    metadata: Object = {
        "labels": labels,
        "ownerReferences": [objects.owner_reference(keys.SHADOW_ENDPOINT_SLICE, shadow)],
        **({"annotations": annotations} if annotations else {}),
    }
    type_ = _type(template)
    reached = (
        {**each, "addresses": [reach.of(address, type_) for address in each["addresses"]]}
        for each in template.get("endpoints") or []
    )
    endpoints = [
        _endpoint(each, is_reachable=is_reachable) for each in reached if all(each["addresses"])
    ]
    return objects.named(
        keys.ENDPOINT_SLICE,
        objects.key_of(shadow),
        metadata=metadata,
        addressType=type_,
        endpoints=endpoints,
        ports=template.get("ports") or [],
    )


def refused(shadow: Object, reach: EndpointAddresses) -> list[str]:
    """Return the addresses of ``shadow`` that its consumer may not name."""
    type_ = _type(_template(shadow))
    return [address for address in named(shadow) if not reach.of(address, type_)]


def named(shadow: Object) -> Iterator[str]:
    for each in _template(shadow).get("endpoints") or []:
        yield from each["addresses"]


def is_reachable(foreign_cluster: Object | None) -> bool:
    """Whether the consumer's pods can be reached, as far as anybody says.

    Source: docs/parity.md § 4.11.
    """
    status = objects.status(foreign_cluster)
    found = [
        each
        for module in (status.get("modules") or {}).values()
        for each in (module or {}).get("conditions") or []
    ] + (status.get("conditions") or [])
    return all(
        str((objects.find_condition(found, type_) or {}).get("status", "")) in _WELL
        for type_ in _NEEDED
    )


def _endpoint(endpoint: Mapping[str, Any], *, is_reachable: bool) -> Object:
    conditions_ = endpoint.get("conditions") or {}
    ready = conditions_.get("ready") is not False and is_reachable
    return {**endpoint, "conditions": {**conditions_, "ready": ready}}


def _template(shadow: Object) -> Object:
    return objects.spec(shadow).get("template") or {}


def _type(template: Object) -> str:
    return str(template.get("addressType") or _IPV4)
