"""Security of the page: checked requests, one identity per browser, response headers."""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dash import Dash
from dash.exceptions import DependencyException
from flask import Response, g, request
from werkzeug.exceptions import BadRequest, NotFound

_COOKIE = "icssl_explore"
_CALLBACKS = "/_dash-update-component"


def guard(app: Dash) -> None:
    """Refuse requests that our page does not send, and give every browser an identity."""
    server = app.server
    server.before_request(_identify_client)
    server.before_request(lambda: _check_callback(app.callback_map))
    server.after_request(_with_headers(app))
    server.register_error_handler(DependencyException, lambda error: NotFound())


def client() -> str:
    """Return the identity of the browser that asks, which nobody else can guess."""
    return str(g.client)


def _identify_client() -> None:
    cookie = request.cookies.get(_COOKIE, "")
    g.new_client = not re.fullmatch(r"[\w-]{43}", cookie, re.ASCII)
    g.client = secrets.token_urlsafe(32) if g.new_client else cookie


def _with_headers(app: Dash) -> Callable[[Response], Response]:
    """Return a function that adds headers to a response, and a cookie for a new client."""
    headers = {
        "Content-Security-Policy": _policy(app),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",  # the address holds all settings
        "Cross-Origin-Resource-Policy": "same-origin",
    }

    def add(response: Response) -> Response:
        response.headers.update(headers)
        if g.get("new_client"):
            # Lax: after a link from elsewhere, the page still has its tables.
            response.set_cookie(_COOKIE, g.client, httponly=True, samesite="Lax")
        return response

    return add


def _policy(app: Dash) -> str:
    """Return the policy: only files of this page, and no frame around it."""
    scripts = " ".join(app.csp_hashes())
    rules = {
        "default-src": "'none'",
        "script-src": f"'self' {scripts}",
        "style-src": "'self' 'unsafe-inline'",  # plotly and Dash place things by styles
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {allowed}" for name, allowed in rules.items())


def _check_callback(callbacks: Mapping[str, Any]) -> None:
    """Refuse a call that is not one of the page's callbacks, with all its parts."""
    if request.path != _CALLBACKS or request.method != "POST":
        return
    try:
        body = request.get_json()
    except RecursionError as error:
        raise BadRequest("This is nested too deeply.") from error
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        raise BadRequest("This is no call of the page.")
    callback = callbacks.get(body["output"])
    if callback is None:
        raise BadRequest("The page has no such callback.")
    several = isinstance(callback["output"], (list, tuple))
    outputs = callback["output"] if several else [callback["output"]]
    sent = body.get("outputs") if several else [body.get("outputs")]
    _check_places(sent, [_place(output) for output in outputs])
    inputs = [(part["id"], part["property"]) for part in callback["inputs"]]
    _check_places(body.get("inputs"), inputs)
    states = [(part["id"], part["property"]) for part in callback["state"]]
    _check_places(body.get("state", []), states)
    names = {f"{name}.{kind}" for name, kind in inputs}
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(
        isinstance(name, str) and name in names for name in changed
    ):
        raise BadRequest("What changed is no input of the callback.")


def _place(output: Any) -> tuple[str, str]:
    return output.component_id, output.component_property


def _check_places(sent: Any, wanted: Sequence[tuple[str, str]]) -> None:
    """Check that the parts of the page that were sent are the callback's, in order."""
    if not isinstance(sent, list) or not all(isinstance(part, dict) for part in sent):
        raise BadRequest("The parts of a call are a list.")
    # Dash adds "@..." to the name of a property that several callbacks set.
    places = [
        (part.get("id"), str(part.get("property")).partition("@")[0]) for part in sent
    ]
    if places != list(wanted):
        raise BadRequest("The parts of the call are not those of the callback.")
