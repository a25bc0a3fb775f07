"""Federated active learning: many data owners, few labels, one shared model."""

__version__ = "0.1.0"
