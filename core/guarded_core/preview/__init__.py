"""What would happen, and what a model is shown; nothing here spends."""
