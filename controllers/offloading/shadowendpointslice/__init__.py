"""ShadowEndpointSlice to EndpointSlice, on the provider: what is reachable in other clusters."""
