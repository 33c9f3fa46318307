"""What this process may do in tenant namespaces: it reads and writes Secrets nowhere else."""
