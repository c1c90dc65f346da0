"""Settings of an experiment: fields, presets, text, and what describes them."""
