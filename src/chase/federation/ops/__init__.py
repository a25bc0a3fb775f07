"""Operating a federation: keys, processes, proxy, set-up."""
