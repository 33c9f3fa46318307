"""Which controllers there are: a new one is a folder with a ``loop``, or a file, and a row here."""

from typing import Final

from controllers import objectquotas
from controllers.authentication.identity import loop as identity
from controllers.authentication.nonce import loop as nonce
from controllers.authentication.renewal import loop as renewal
from controllers.authentication.tenant import loop as tenant
from controllers.authentication.tenantrights import loop as tenantrights
from controllers.granting.grants import loop as grants
from controllers.granting.metricsapi import loop as metricsapi
from controllers.granting.resourceslice import loop as resourceslice
from controllers.manager import Controller
from controllers.offloading.csrapproval import loop as csrapproval
from controllers.offloading.namespacemap import loop as namespacemap
from controllers.offloading.namespaceoffloading import loop as namespaceoffloading
from controllers.offloading.nodefailure import loop as nodefailure
from controllers.offloading.placement import loop as placement
from controllers.offloading.shadowendpointslice import loop as shadowendpointslice
from controllers.offloading.shadowpod import loop as shadowpod
from controllers.offloading.storage import loop as storage
from controllers.offloading.virtualnode import loop as virtualnode
from controllers.peers.clusterprofile import loop as clusterprofile
from controllers.peers.foreigncluster import loop as foreigncluster
from controllers.peers.podnetworks import loop as podnetworks
from controllers.peers.replication import loop as replication

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
    objectquotas.controller,
    tenant.controller,
    nonce.controller,
    identity.controller,
    renewal.controller,
    replication.controller,
    foreigncluster.controller,
    clusterprofile.controller,
    podnetworks.controller,
    resourceslice.controller,
    grants.controller,
    metricsapi.controller,
)
