"""Renewal of control-plane certificates, by a Renew that stays: one on each side."""
