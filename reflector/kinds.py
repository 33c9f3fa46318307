"""The forge of each kind of the table in ``apis.reflection``."""

from typing import Final

from apis.reflection import ReflectedKind
from reflector.forge import (
    configmap,
    endpointslice,
    event,
    ingress,
    persistentvolumeclaim,
    secret,
    service,
)
from reflector.forge.contract import Forge

FORGES: Final[dict[ReflectedKind, Forge]] = {
    forge.row: forge
    for forge in (
        configmap.FORGE,
        secret.FORGE,
        service.FORGE,
        endpointslice.FORGE,
        ingress.FORGE,
        persistentvolumeclaim.FORGE,
        event.FORGE,
    )
}
