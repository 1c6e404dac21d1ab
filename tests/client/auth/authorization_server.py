"""A real authorization server: Authlib's, with a memory instead of a database."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from authlib.oauth2.rfc6749 import (
    AuthorizationCodeMixin,
    AuthorizationServer,
    ClientMixin,
    OAuth2Request,
    TokenMixin,
    grants,
)
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint, DeviceCodeGrant

from client.auth.http_server import LittleHttp, Request, Response, as_json

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass
class App(ClientMixin):
    """A client that is registered."""

    id: str
    secret: str = ""
    methods: tuple[str, ...] = ("client_secret_basic",)

    def get_client_id(self) -> str:
        return self.id

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        # RFC 8252 §7.3: any port of the loopback address.
        return redirect_uri.startswith("http://127.0.0.1:") and redirect_uri.endswith("/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(client_secret, self.secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in self.methods

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return True


@dataclass
class Code(AuthorizationCodeMixin):
    client_id: str
    redirect_uri: str
    scope: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Issued(TokenMixin):
    client_id: str
    scope: str
    access_token: str
    refresh_token: str

    def check_client(self, client: App) -> bool:
        return client.id == self.client_id

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Device:
    client_id: str
    scope: str
    user_code: str

    def get_client_id(self) -> str:
        return self.client_id

    def get_scope(self) -> str:
        return self.scope

    def get_user_code(self) -> str:
        return self.user_code

    def is_expired(self) -> bool:
        return False


class AuthlibRequest(OAuth2Request):
    """A request in Authlib's words."""

    def __init__(self, request: Request) -> None:
        uri = f"{request.base}{request.target}"
        # Authlib reads names as its frameworks give them.
        headers = {name.title(): value for name, value in request.headers.items()}
        super().__init__(request.method, uri, headers=headers)
        self._form, self._args = request.form, request.query
        self.payload = BasicOAuth2Payload({**self._args, **self._form})

    @property
    def args(self) -> dict[str, str]:
        return self._args

    @property
    def form(self) -> dict[str, str]:
        return self._form


class Core(AuthorizationServer):
    """Authlib's server over our memory."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    def query_client(self, client_id: str) -> App | None:
        return self.memory.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
        issued = Issued(
            request.client.id,
            token.get("scope", ""),
            token["access_token"],
            token.get("refresh_token", ""),
        )
        self.memory.tokens.append(issued)

    def create_oauth2_request(self, request: Request | OAuth2Request) -> OAuth2Request:
        return request if isinstance(request, OAuth2Request) else AuthlibRequest(request)

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        if isinstance(body, dict):
            return as_json(body, status)
        return Response(status, str(body or "").encode(), dict(headers))

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass


@dataclass
class Memory:
    """What the server knows."""

    clients: dict[str, App] = field(default_factory=dict)
    codes: dict[str, Code] = field(default_factory=dict)
    tokens: list[Issued] = field(default_factory=list)
    devices: dict[str, Device] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    slow: int = 0

    def valid(self, access: str) -> bool:
        return any(secrets.compare_digest(each.access_token, access) for each in self.tokens)


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")

    def save_authorization_code(self, code: str, request: OAuth2Request) -> None:
        data = request.payload.data
        self.server.memory.codes[code] = Code(
            request.client.id,
            data["redirect_uri"],
            data.get("scope", ""),
            data.get("code_challenge", ""),
            data.get("code_challenge_method", ""),
        )

    def query_authorization_code(self, code: str, client: App) -> Code | None:
        found = self.server.memory.codes.get(code)
        return found if found is not None and found.client_id == client.id else None

    def delete_authorization_code(self, authorization_code: Code) -> None:
        codes = self.server.memory.codes
        for name in [name for name, each in codes.items() if each is authorization_code]:
            del codes[name]

    def authenticate_user(self, authorization_code: Code) -> str:
        return "alice"


class RefreshGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Issued | None:
        tokens = self.server.memory.tokens
        return next((t for t in tokens if refresh_token and t.refresh_token == refresh_token), None)

    def authenticate_user(self, refresh_token: Issued) -> str:
        return "alice"

    def revoke_old_credential(self, refresh_token: Issued) -> None:
        self.server.memory.tokens.remove(refresh_token)


class ByDevice(DeviceCodeGrant):
    def query_device_credential(self, device_code: str) -> Device | None:
        return self.server.memory.devices.get(device_code)

    def query_user_grant(self, user_code: str) -> tuple[str, bool] | None:
        decided = self.server.memory.decisions.get(user_code)
        return None if decided is None else ("alice", decided)

    def should_slow_down(self, credential: Device) -> bool:
        self.server.memory.slow -= 1
        return self.server.memory.slow >= 0


class DevicePage(DeviceAuthorizationEndpoint):
    INTERVAL = 1

    def get_verification_uri(self) -> str:
        return f"{self.server.base}/device"

    def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
        found = Device(client_id, scope or "", data["user_code"])
        self.server.memory.devices[data["device_code"]] = found


class Authority(LittleHttp):
    """The server behind its addresses. Whoever comes to its page is logged in as alice."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.memory = Memory()
        self.lives: int = 3600
        self.access: Callable[[str], str] = lambda client: secrets.token_urlsafe(24)
        """Makes access tokens."""
        self.iss: str | None = None
        """What it calls itself in answers; None: its name."""
        self.issuer: str | None = None
        """What it calls itself in its metadata."""
        self.core = core = Core(self.memory)
        core.register_token_generator(
            "default",
            BearerTokenGenerator(
                lambda client, **_: self.access(client.id),
                lambda **_: secrets.token_urlsafe(24),
                lambda client, kind: self.lives,
            ),
        )
        core.register_grant(grants.ClientCredentialsGrant)
        core.register_grant(CodeGrant, [CodeChallenge(required=True)])
        core.register_grant(RefreshGrant)
        core.register_grant(ByDevice)
        core.register_endpoint(DevicePage)

    async def __aenter__(self) -> Authority:
        await super().__aenter__()
        self.core.base = self.url
        return self

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.heard if request.path == path]

    def granted(self, kind: str) -> list[Request]:
        """Token requests of one kind."""
        return [r for r in self.asked("/token") if r.form.get("grant_type") == kind]

    def revoke_all(self) -> None:
        """Nothing it gave counts any more."""
        self.memory.tokens.clear()

    def end_access(self) -> None:
        """Access tokens end, refresh tokens stay."""
        for each in self.memory.tokens:
            each.access_token = secrets.token_urlsafe(24)

    def _answer(self, request: Request) -> Response:
        match request.path:
            case "/token":
                return self.core.create_token_response(request)
            case "/device_authorization":
                return self.core.create_endpoint_response("device_authorization", request)
            case "/authorize":
                return self._authorize(request)
            case path if path.startswith("/.well-known/"):
                return as_json(self._metadata())
            case _:
                return Response(404)

    def _authorize(self, request: Request) -> Response:
        grant = self.core.get_consent_grant(request, "alice")
        said = self.core.create_authorization_response(
            AuthlibRequest(request), grant_user="alice", grant=grant
        )
        iss = self.url if self.iss is None else self.iss
        if iss:
            said.headers["Location"] += f"&iss={quote(iss, safe='')}"
        return said

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url if self.issuer is None else self.issuer,
            "token_endpoint": f"{self.url}/token",
            "authorization_endpoint": f"{self.url}/authorize",
            "device_authorization_endpoint": f"{self.url}/device_authorization",
            "authorization_response_iss_parameter_supported": True,
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
            "scopes_supported": ["openid", "offline_access", "ask"],
        }
