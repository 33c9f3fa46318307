"""The pods of a virtual node: what is decided for each, said here, and asked of the provider.

Most modules are pure: objects go in, objects come out. pyproject.toml lists them.
"""
