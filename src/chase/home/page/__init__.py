"""The labelling page: a small web server on the client's own machine, and what runs in the browser."""
