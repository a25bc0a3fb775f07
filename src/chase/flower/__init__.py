"""Flower carries the messages: the only room that imports ``flwr``."""
