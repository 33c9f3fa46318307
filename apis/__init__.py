"""What can be said about Kubernetes objects, ours and others', without a cluster.

Belongs here: kinds, labels, names, quantities, selectors, conditions and our own kinds as frozen
dataclasses. Pure: standard library only, no I/O, no clock, no other package of this project.
"""
