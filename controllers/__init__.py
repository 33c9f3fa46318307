"""The cluster-wide loops: one folder a kind, each with a pure forge and a reconciler that does I/O.

Belongs here: what brings the objects of a whole cluster to their desired state, on the consumer and
on the provider. It may import ``certs``, ``kube`` and ``apis``, and none of the other processes.
"""
