"""Issued certificates, read by an outside linter (pkilint, RFC 5280).

`unexplained` gives what the linter finds and no line of EXPLAINED accounts for. Certificates are
what their requests and the reference make them; where the RFC would have it otherwise, the reason
stands here, in one line, once for all tests.
"""

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from pkilint import loader
from pkilint.pkix import certificate, extension, name
from pkilint.validation import ValidationFindingSeverity

LINTER = certificate.create_pkix_certificate_validator_container(
    certificate.create_decoding_validators(
        name.ATTRIBUTE_TYPE_MAPPINGS, extension.EXTENSION_MAPPINGS
    ),
    [
        certificate.create_issuer_validator_container([]),
        certificate.create_validity_validator_container(),
        certificate.create_subject_validator_container([]),
        certificate.create_extensions_validator_container([]),
        certificate.create_spki_validator_container([]),
    ],
)

EXPLAINED = {
    "pkix.rdn_contains_duplicate_attribute_types": "groups share one relative name, as upstream",
    "pkix.invalid_domain_name_syntax": "hosts may be single labels and have underscores, as nodes'",
    "pkix.invalid_uri_syntax": "the host of a URI may be a single label: SPIFFE trust domains are",
}


def findings(issued: x509.Certificate) -> set[str]:
    """Give the codes of every error, warning and notice."""
    data = issued.public_bytes(serialization.Encoding.DER)
    document = loader.RFC5280CertificateDocumentLoader().load_der_document(data, "issued")
    return {
        found.finding.code
        for result in LINTER.validate(document.root)
        for found in result.finding_descriptions
        if found.finding.severity <= ValidationFindingSeverity.NOTICE
    }


def unexplained(issued: x509.Certificate) -> set[str]:
    """Problems of a certificate that no profile explains."""
    return findings(issued) - EXPLAINED.keys()
