"""The pods of a virtual node: what is decided for each, written here, and asked of the provider."""
