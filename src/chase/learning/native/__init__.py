"""The compiled kernel of the small networks: its C sources, how it is loaded, and when it is used.

Imports nothing but the standard library, so that commands that do not train start without torch.
"""
