"""The paths of the OpenAPI documents."""

from typing import Final

V2: Final = "/openapi/v2"
V3: Final = "/openapi/v3"
