"""Programs that show what a change of the code did to its figures, and to the mistakes that its tests find."""
