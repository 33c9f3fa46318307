"""Pods on nodes where their namespace no longer places pods: counted, and evicted if asked."""
