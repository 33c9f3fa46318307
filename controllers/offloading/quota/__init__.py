"""The ledger of what users take: booked in a Quota's status before a Pod is created."""
