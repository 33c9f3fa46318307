"""Namespaces, virtual nodes and pods that run on providers."""
