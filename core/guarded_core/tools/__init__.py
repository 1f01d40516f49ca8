"""What a tool is, and how JSON arguments reach it."""
