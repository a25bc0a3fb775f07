"""Ways to run the clients of a round."""
