"""The kubelet API of a virtual node: logs, streams, metrics, and its serving certificate."""
