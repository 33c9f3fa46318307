"""The clusters that this one peers with, and what is copied to them."""
