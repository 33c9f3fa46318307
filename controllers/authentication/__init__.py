"""Who a peer is: tenants, identities, nonces, renewals, their rights."""
