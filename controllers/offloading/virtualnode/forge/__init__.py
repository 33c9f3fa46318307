"""What a VirtualNode needs, computed: its Deployment, its rights, its map, its conditions."""
