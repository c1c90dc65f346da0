"""Attack a private run: canaries, and the lower bounds on epsilon that their detection proves."""
