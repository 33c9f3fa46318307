"""All else that a pod needs on the other side: ConfigMaps, Secrets, Services.

Belongs here: the second container of the pod ``vk-<virtualnode>``, the one algorithm that keeps
twins, the policies that say what stays at the consumer, and pure rules a kind. Of all virtual
nodes of a provider one is active, by Lease. May import ``kube`` and ``apis``; no other process.
"""
