"""Reads run directories; shows them as tables, plots and one HTML page."""
