"""What commands do with a cluster; imported when a command runs, not before."""
