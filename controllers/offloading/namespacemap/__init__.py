"""NamespaceMap to twin namespaces, on the provider: made, guarded and deleted by its own record."""
