"""The server: orders, averaging and evaluation."""
