"""Approves the serving certificate that a virtual kubelet asks for, exactly that and no other."""
