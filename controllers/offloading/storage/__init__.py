"""Claims of the virtual storage class whose first pod runs on a node of this cluster."""
