"""Engines that simulate clients on this machine."""
