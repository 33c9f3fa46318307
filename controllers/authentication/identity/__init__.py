"""How this cluster signs in to its providers: Identities, and the kubeconfigs made of them."""
