"""Second moments of features of bounded norm, and every linear model that follows from one noisy release of them."""
