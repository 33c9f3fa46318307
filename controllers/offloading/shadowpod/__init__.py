"""ShadowPod to Pod, on the provider: the consumer asks, the provider's own controller creates."""
