"""Models behind a server: how they are asked, and what they can say of tokens."""
