"""Certificates that this cluster, a provider, gives to its consumers, and how they get in."""
