"""Certificates and keys: a CA and a server certificate for TLS, and one EC key a site.

Private keys are created with mode 0600 and never leave the machine they are made on: of a site's key only the
public half goes to the server, and of the CA only its certificate goes to the sites.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chase.core import files
from chase.core.errors import FederationError

DAYS = 825
"""How long a server certificate is valid: `chase federation renew` makes another."""
CA_DAYS = 3650
"""How long the CA is valid, whose certificate the sites have."""
CURVE = ec.SECP384R1
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def write_private(path: Path, content: bytes) -> None:
    """A key of a federation."""
    files.write_private(path, content, refusal=FederationError)


def check_private(path: Path) -> None:
    """Refuse a private key that others may read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise FederationError(f"cannot read the key {path}: {error.strerror or error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise FederationError(f"{path} may be read by others (mode {stat.S_IMODE(mode):o}): run `chmod 600 {path}`")


def site_key(path: Path, name: str) -> str:
    """Make a site's key pair, ``path`` and ``path``.pub; returns the public half as an OpenSSH line."""
    key = ec.generate_private_key(CURVE())
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + f" {name}"
    files.write_atomically(path.with_name(path.name + ".pub"), f"{line}\n".encode(), refusal=FederationError)
    return line


def read_public(path: Path) -> str:
    """A site's public key; anything else than an EC key is refused."""
    try:
        line = path.read_text(encoding="utf-8").strip()
        if not isinstance(load_ssh_public_key(line.encode()), ec.EllipticCurvePublicKey):
            raise ValueError("it is not an EC key")
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise FederationError(f"{path} is not the public key of a site ({error}): give its node.key.pub") from None
    return line


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    until: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # a site whose clock is behind is told so by the server
        .not_valid_after(end if until is None else min(end, until))
    )


def check_host(host: str) -> None:
    """Refuse what is neither a host name nor an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if len(host) > 253 or not HOST.fullmatch(host):
            raise FederationError(
                f"'{host}' is not a host name or address: use letters, digits, dots and hyphens, such as "
                "fed.example.org "
                "(names in other scripts in their xn-- form)"
            ) from None


def alternative_name(host: str) -> x509.GeneralName:
    """A host name or address as a certificate holds it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def signed_by(
    ca_key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    subject: x509.Name,
    names: Sequence[x509.GeneralName],
    key: ec.EllipticCurvePublicKey,
    until: datetime.datetime | None = None,
) -> x509.Certificate:
    """A server certificate for these names, good no longer than its CA."""
    return (
        _builder(subject, issuer, key, DAYS, until)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )


def server_certificate(directory: Path, hosts: Sequence[str]) -> None:
    """Make ``ca.crt``, ``ca.key``, ``server.pem`` and ``server.key`` for these host names and addresses."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    ca_key, key = ec.generate_private_key(CURVE()), ec.generate_private_key(CURVE())
    issuer = _name("chase federation CA")
    ca = (
        _builder(issuer, issuer, ca_key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(ca_key, hashes.SHA384())
    )
    server = signed_by(ca_key, issuer, _name(hosts[0]), [alternative_name(host) for host in hosts], key.public_key())
    for name, private in (("ca.key", ca_key), ("server.key", key)):
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_private(directory / name, pem)
    for name, certificate in (("ca.crt", ca), ("server.pem", server)):
        files.write_atomically(directory / name, certificate.public_bytes(Encoding.PEM), refusal=FederationError)
