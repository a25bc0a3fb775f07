"""Flower's SuperLink with a gateway of ours in front of it (``chase.flower.gateway``).

python -m chase.flower.superlink --secret FILE --most-answer BYTES -- <arguments of flower-superlink>
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import uvicorn
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, _parse_superlink_lifespan_config
from flwr.superlink.main import create_app

from chase.flower.gateway import Gateway


def main(arguments: list[str] | None = None) -> None:
    """Serve until a signal comes."""
    given = sys.argv[1:] if arguments is None else arguments
    ours, theirs = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser()
    parser.add_argument("--secret", type=Path, required=True)
    parser.add_argument("--most-answer", type=int, required=True)
    options = parser.parse_args(ours)
    sys.argv = ["flower-superlink", *theirs]  # Flower reads its arguments from here
    config = _parse_superlink_lifespan_config()
    app = create_app(config, SuperLinkLifespan)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    uvicorn.run(
        Gateway(app, options.secret.read_text(encoding="utf-8").strip(), options.most_answer),
        host=config.host,
        port=config.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=config.ssl_certfile,
        ssl_keyfile=config.ssl_keyfile,
        ws="none",
    )


if __name__ == "__main__":
    main()
