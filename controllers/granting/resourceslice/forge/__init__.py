"""What a consumer asks for and makes of the answer, and whom a provider certifies. Pure."""
