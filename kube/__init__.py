"""The machinery: API servers, informers, queues, leases, events, logs, metrics, processes.

Belongs here: whatever talks to a Kubernetes API server or runs a loop, and knows nothing of
offloading, save for what the two containers of a virtual node share (``flags``, ``peer``, the
budget of a provider in ``ratelimit``). The only package that imports ``kubernetes``; it may import
``apis`` and nothing else of this project.
"""
