"""A client's home: its samples, its questions and the people who answer them."""
