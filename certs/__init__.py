"""Certificates: authorities, leaves, requests, kubeconfigs, and the process that keeps them fresh.

Belongs here: whatever makes, checks or hands out keys and certificates. The only package that
imports ``cryptography``; it may import ``kube`` and ``apis``, never a process above it.
"""
