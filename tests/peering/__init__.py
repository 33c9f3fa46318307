"""Two API servers with our controllers, who peer and part; no pod runs."""
