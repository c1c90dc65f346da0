"""What several runs tell: summaries, measures, verdicts and tests over seeds."""
