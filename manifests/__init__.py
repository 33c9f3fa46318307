"""What an administrator applies: plain YAML under one kustomization, which comes with the wheel.

No code belongs here. ``liqoctl install`` reads these files as ``kubectl kustomize`` would.
"""
