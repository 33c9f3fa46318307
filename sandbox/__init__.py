"""Real clusters on this machine, for the demo, the tests and the benchmarks.

Belongs here: what starts, feeds and removes them, and what a test asks of them from outside
(kubectl, the audit log). It may import ``certs``, ``kube`` and ``apis``; nothing but tests and the
Makefile uses it, and no promise of the product rests on it.
"""
