"""What a provider grants to its consumers: slices and their classes."""
