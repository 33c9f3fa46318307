"""Pods that run where their namespace places none any more: counted, and evicted if asked."""
