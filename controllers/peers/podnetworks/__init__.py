"""Says in which networks this cluster's pods are, to who peers with it."""
