"""A ClusterProfile for each peer, for tools that read those (KEP-4322)."""
