"""A benchmark that nobody can tune to: made tables of known truth, real ones that packages ship, and peers."""
