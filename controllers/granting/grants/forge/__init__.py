"""Who is granted what, and how that is written. Pure."""
