"""What consumers are granted: one ledger for all slices, their statuses and their Quotas."""
