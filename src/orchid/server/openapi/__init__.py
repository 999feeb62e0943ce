"""The OpenAPI documents, made from the kinds' declarations when somebody asks."""
