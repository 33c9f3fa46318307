"""NamespaceOffloading to the entries of NamespaceMaps, on the consumer, and their state back."""
