"""The commands as click sees them: flags, help with examples, no cluster."""
