"""Pods of consumers that end on a node that is gone: opt-in, on the provider."""
