"""Our own objects between two clusters: spec from consumer to provider, status back."""
