"""How each kind is reflected: pure functions in a module a group, and nothing that does I/O."""
