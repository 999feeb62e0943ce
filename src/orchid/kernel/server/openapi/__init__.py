"""The OpenAPI documents, made from the kinds' declarations on demand."""
