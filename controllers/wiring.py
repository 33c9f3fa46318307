"""Which controllers there are: a new one is a folder with a ``reconciler`` and a row here."""

from typing import Final

from controllers import objectquotas
from controllers.authentication import nonce, renewal
from controllers.authentication.identity import reconciler as identity
from controllers.authentication.tenant import reconciler as tenant
from controllers.authentication.tenantrights import reconciler as tenantrights
from controllers.granting.grants import reconciler as grants
from controllers.granting.metricsapi import reconciler as metricsapi
from controllers.granting.resourceslice import reconciler as resourceslice
from controllers.manager import Controller
from controllers.offloading.csrapproval import reconciler as csrapproval
from controllers.offloading.namespacemap import reconciler as namespacemap
from controllers.offloading.namespaceoffloading import reconciler as namespaceoffloading
from controllers.offloading.nodefailure import reconciler as nodefailure
from controllers.offloading.placement import reconciler as placement
from controllers.offloading.shadowendpointslice import reconciler as shadowendpointslice
from controllers.offloading.shadowpod import reconciler as shadowpod
from controllers.offloading.storage import reconciler as storage
from controllers.offloading.virtualnode import reconciler as virtualnode
from controllers.peers import podnetworks
from controllers.peers.clusterprofile import reconciler as clusterprofile
from controllers.peers.foreigncluster import reconciler as foreigncluster
from controllers.peers.replication import peers as replication

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
