"""Certificates for the tests: a CA, and what it signed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """A CA whose files lie in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        self.ca = str(self._save(name, self._built(self.subject, self.key, basic), self.key)[0])

    def issue(self, name: str, *, uri: str = "", password: bytes | None = None) -> tuple[str, str]:
        """The paths of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        if uri:
            names = [x509.UniformResourceIdentifier(uri)]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        cert = self._built(
            subject,
            key,
            x509.BasicConstraints(ca=False, path_length=None),
            x509.SubjectAlternativeName(names),
            x509.ExtendedKeyUsage(uses),
        )
        paths = self._save(f"{self.name}-{name}", cert, key, password)
        return str(paths[0]), str(paths[1])

    def channel_credentials(self, name: str, uri: str) -> object:
        """What a gRPC channel needs to speak as the holder of such a certificate."""
        cert, key = (Path(path).read_bytes() for path in self.issue(name, uri=uri))
        return grpc.ssl_channel_credentials(Path(self.ca).read_bytes(), key, cert)

    def _built(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )
        for extension in extensions:
            critical = isinstance(extension, x509.BasicConstraints)
            built = built.add_extension(extension, critical=critical)
        return built.sign(self.key, hashes.SHA256())

    def _save(
        self,
        name: str,
        cert: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        password: bytes | None = None,
    ) -> tuple[Path, Path]:
        paths = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        paths[0].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        locked = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        paths[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
        return paths
