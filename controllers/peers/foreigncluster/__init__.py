"""Tells of each other cluster what it is to this one, and how every part of that is."""
