"""Rules of fields of requests for certificates, which the kinds apply."""
