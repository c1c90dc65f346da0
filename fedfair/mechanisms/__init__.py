"""What makes a release private: clipping, counting, noise, sampling and randomness."""
