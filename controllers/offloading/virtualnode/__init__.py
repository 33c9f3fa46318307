"""VirtualNode to its virtual kubelet: rights, Deployment, NamespaceMap; drained before it goes."""
