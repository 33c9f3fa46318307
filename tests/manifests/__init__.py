"""The manifests: what they say, and that real API servers accept it."""
