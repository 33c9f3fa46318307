"""How the twin of each kind looks: one pure function a kind, and nothing that does I/O."""
