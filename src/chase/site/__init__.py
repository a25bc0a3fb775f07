"""A site: one client of a real federation, living in a directory of its own."""
