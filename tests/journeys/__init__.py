"""Two real clusters with pyliqo installed, our real processes in pods: what users see."""
