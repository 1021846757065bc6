"""/.well-known/openid-configuration and /openid/v1/jwks: with what others check tokens of ServiceAccounts."""

from typing import TYPE_CHECKING

from kube32.api.http import Response
from kube32.api.status import dump
from kube32.contract import NAMES

if TYPE_CHECKING:
    from kube32.api.server import ApiServer

_CONFIGURATION = "/.well-known/openid-configuration"
_KEYS = "/openid/v1/jwks"


def handle(server: "ApiServer", path: str) -> Response | None:
    """The answer to a GET of one of the two; None for another path."""
    path = path.rstrip("/")
    if path == _KEYS:
        return Response(200, dump(server.security.accounts.key_set()), {}, "application/jwk-set+json")
    if path != _CONFIGURATION:
        return None
    issuer = NAMES.token_issuer
    told = {
        "issuer": issuer,
        "jwks_uri": f"{issuer}{_KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
    return Response(200, dump(told))
