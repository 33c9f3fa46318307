"""A consumer of this cluster: who it is, what it may do, and how all of that ends."""
