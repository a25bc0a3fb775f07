"""The server's certificate over time: when it ends, how to compare it by phone, and a new one from the same CA."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.federation.ops.keys import CURVE, alternative_name, check_host, check_private, signed_by, write_private

AHEAD = 60
"""Days before its end from which a certificate is reported."""


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate from its file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FederationError(f"{path} is not a certificate: {error}") from None


def days_left(path: Path) -> int:
    """Days until a certificate ends; negative where it has ended."""
    return (read_certificate(path).not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days


def fingerprint(path: Path) -> str:
    """What two people compare by phone: the SHA-256 of a certificate, in groups of four."""
    text = read_certificate(path).fingerprint(hashes.SHA256()).hex().upper()
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


def renew(directory: Path, hosts: Sequence[str] = ()) -> int:
    """A new server key and certificate for the same names and more, from the same CA; returns the days it is good for.

    Sites need nothing new: they trust the CA. The old pair stays beside it as ``.old``; it is replaced when the new
    one is written. After a kill in between, run it again.
    """
    for host in hosts:
        check_host(host)
    check_private(directory / "ca.key")
    ca, old = read_certificate(directory / "ca.crt"), read_certificate(directory / "server.pem")
    if days_left(directory / "ca.crt") < AHEAD:
        raise FederationError(
            f"the CA certificate itself expires in {days_left(directory / 'ca.crt')} days: create the federation "
            "again in another directory, copy its keys/ca.crt to every site and move the sites over "
            "(docs/deploy.md, Certificates)"
        )
    ca_key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise FederationError(f"{directory}/ca.key is not the key of this CA")
    names = list(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    names += [name for name in map(alternative_name, hosts) if name not in names]
    key = ec.generate_private_key(CURVE())
    certificate = signed_by(ca_key, ca.subject, old.subject, names, key.public_key(), ca.not_valid_after_utc)
    pem, new_key = directory / "server.pem", directory / "server.key.new"
    new_key.unlink(missing_ok=True)
    write_private(new_key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_atomically(directory / "server.pem.new", certificate.public_bytes(Encoding.PEM), refusal=FederationError)
    for name in ("server.key", "server.pem"):
        if (directory / name).exists():
            _name_also(directory / name, directory / f"{name}.old")
        (directory / f"{name}.new").replace(directory / name)
    return days_left(pem)


def _name_also(path: Path, other: Path) -> None:
    """Another name for a file, which keeps its own until it is replaced."""
    other.unlink(missing_ok=True)
    try:
        os.link(path, other)
    except OSError:  # a file system without hard links
        path.replace(other)
