"""Fit: one budget pays for preprocessing, training, choice and figures; what it leaves behind can be published."""
