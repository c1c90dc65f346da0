"""What does each group pay for privacy, which method closes the gap, and is the printed epsilon true.

This package holds what one client knows and does, and the vocabulary that clients and server share.
"""
