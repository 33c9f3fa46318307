"""Which controllers there are: a new one is a folder with a ``loop``, and a row here."""

from typing import Final

from controllers.csrapproval import loop as csrapproval
from controllers.foreigncluster import loop as foreigncluster
from controllers.grants import loop as grants
from controllers.identity import loop as identity
from controllers.manager import Controller
from controllers.namespacemap import loop as namespacemap
from controllers.namespaceoffloading import loop as namespaceoffloading
from controllers.nodefailure import loop as nodefailure
from controllers.nonce import loop as nonce
from controllers.placement import loop as placement
from controllers.renewal import loop as renewal
from controllers.replication import loop as replication
from controllers.resourceslice import loop as resourceslice
from controllers.shadowendpointslice import loop as shadowendpointslice
from controllers.shadowpod import loop as shadowpod
from controllers.storage import loop as storage
from controllers.tenant import loop as tenant
from controllers.tenantrights import loop as tenantrights
from controllers.virtualnode import loop as virtualnode

CONTROLLERS: Final[tuple[Controller, ...]] = (
    namespaceoffloading.controller,
    placement.controller,
    namespacemap.controller,
    virtualnode.controller,
    shadowpod.controller,
    nodefailure.controller,
    shadowendpointslice.controller,
    storage.controller,
    csrapproval.controller,
    tenantrights.controller,
    tenant.controller,
    nonce.controller,
    identity.controller,
    renewal.controller,
    replication.controller,
    foreigncluster.controller,
    resourceslice.controller,
    grants.controller,
)
