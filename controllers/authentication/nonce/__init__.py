"""Nonces: made by a provider for one consumer, signed by that consumer for one provider."""
