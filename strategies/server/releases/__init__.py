"""What the server releases beside the training: preprocessing, figures, thresholds, fronts."""
