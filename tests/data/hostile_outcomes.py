"""Outcomes of the samples of the hostile corpus: refused by their kind, unless listed here.

What stands here is stored, because nothing is wrong with its form: odd names in a request are a
matter for the signer's profile, which drops or refuses them (tests/e2e/test_hostile_requests.py);
a certificate is what its signer says, and a bundle what its owner trusts. `is_expected` is silent
about samples with one bit changed: where the bit lands decides.
"""

REQUEST = """
masters-utf8-plain masters-utf8-plain-multi masters-utf8-nul masters-utf8-nul-multi
masters-printable-plain masters-printable-plain-multi masters-teletex-plain
masters-teletex-plain-multi masters-teletex-nul masters-teletex-nul-multi masters-ia5-plain
masters-ia5-plain-multi masters-ia5-nul masters-ia5-nul-multi masters-visible-plain
masters-visible-plain-multi masters-visible-nul masters-visible-nul-multi
masters-universal-plain masters-universal-plain-multi masters-universal-nul
masters-universal-nul-multi masters-bmp-plain masters-bmp-plain-multi masters-bmp-nul
masters-bmp-nul-multi masters-upper masters-wide masters-zero-width masters-soft-hyphen
masters-cyrillic masters-blanks masters-line user-empty user-nul user-lines
user-right-to-left user-slash user-escape user-not-a-character user-emoji user-long
user-as-integer user-as-boolean user-as-null user-as-sequence user-as-bit-string
user-as-general-string user-as-constructed-utf8 subject-empty subject-empty-set
subject-set-of-200 subject-users-200 groups-1000 dns-wildcard dns-bare-wildcard
dns-two-wildcards dns-inner-wildcard dns-idn dns-bad-idn dns-nul dns-line dns-blank
dns-empty dns-dot dns-leading-dot dns-trailing-dot dns-underscore dns-address dns-address6
dns-long-label dns-long dns-very-long dns-upper dns-url uri-script uri-empty uri-long
email-two-ats email-nul name-other name-x400 name-directory name-edi name-registered
name-unknown name-universal name-constructed-dns names-none names-1000 ca-true
ca-giant-path-length ca-negative-path-length ca-loose-boolean ca-garbage ca-empty
usage-cert-sign usage-bad-bits usage-any name-constraints unknown-critical authority-key-id
poison giant no-list challenge-password rsa-1024-signed ec-honest-compressed
pem-begins-and-good pem-windows
"""
CERTIFICATE = """
concatenated concatenated-thousand serial-zero serial-giant times-reversed
times-year-9999 version-one constraints-false constraints-none other-algorithm empty-names
nul-subject zero-modulus unknown-critical thousand-extensions thousand-blocks pem-empty
pem-begins-and-good pem-windows
"""
BUNDLE = """
serial-zero serial-giant times-reversed times-year-9999 version-one
other-algorithm empty-names nul-subject zero-modulus unknown-critical thousand-extensions
full-of-anchors text-between pem-begins-and-good pem-windows
"""

ACCEPTED = frozenset(
    f"{kind}-{label}"
    for kind, labels in (("request", REQUEST), ("certificate", CERTIFICATE), ("bundle", BUNDLE))
    for label in labels.split()
)


def is_expected(name: str, accepted: bool) -> bool:
    """Whether a sample may be accepted, or refused, as it was."""
    return "-changed-" in name or accepted is (name in ACCEPTED)
