"""What the flags of a command ask for, as manifests and words; nothing that does I/O."""
