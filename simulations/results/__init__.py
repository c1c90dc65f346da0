"""What a run leaves: results in memory and in a folder, summaries, tables and saved models."""
