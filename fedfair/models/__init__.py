"""The published models, models from files of the user's own, and optimisers."""
