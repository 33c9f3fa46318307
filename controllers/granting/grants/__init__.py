"""What consumers are granted: a ledger for each Tenant, statuses of slices, and Quotas."""
