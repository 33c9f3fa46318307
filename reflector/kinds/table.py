"""How each kind of the table in ``apis.reflection`` is reflected."""

from typing import Final

from apis.reflection import ReflectedKind
from reflector.kinds import configuration, events, networking, storage
from reflector.kinds.contract import KindReflection

KIND_REFLECTIONS: Final[dict[ReflectedKind, KindReflection]] = {
    of_kind.row: of_kind
    for of_kind in (
        configuration.CONFIG_MAP_REFLECTION,
        configuration.SECRET_REFLECTION,
        networking.SERVICE_REFLECTION,
        networking.ENDPOINT_SLICE_REFLECTION,
        networking.INGRESS_REFLECTION,
        storage.CLAIM_REFLECTION,
        events.EVENT_REFLECTION,
    )
}
