"""Waiting for what a cluster becomes, as commands do."""

from kube.waiting import until

__all__ = ["until"]
