"""What a request must be, whom it is from, and what the browser may do with the page."""

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
    """Refuse requests that no page of ours sends, and tell browsers apart."""
    server = app.server
    server.before_request(_know_client)
    server.before_request(lambda: _check_callback(app.callback_map))
    server.after_request(_with_headers(app))
    server.register_error_handler(DependencyException, lambda error: NotFound())


def client() -> str:
    """The browser that asks, by a number that nobody else can guess."""
    return str(g.client)


def _know_client() -> None:
    given = request.cookies.get(_COOKIE, "")
    g.new_client = not re.fullmatch(r"[\w-]{43}", given, re.ASCII)
    g.client = secrets.token_urlsafe(32) if g.new_client else given


def _with_headers(app: Dash) -> Callable[[Response], Response]:
    """What is done to every answer: headers, and a cookie for a new browser."""
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
            # Lax: a link from elsewhere opens the page with the tables that are on it.
            response.set_cookie(_COOKIE, g.client, httponly=True, samesite="Lax")
        return response

    return add


def _policy(app: Dash) -> str:
    """Nothing but this page's own files, and no frame around it."""
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
    """Refuse a call that is not of one of the page's callbacks, with all its parts."""
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
    outputs = [_place(each) for each in callback["output"]] if several else None
    given = body.get("outputs")
    _check_places(given if several else [given], outputs or [_place(callback["output"])])
    inputs = [(each["id"], each["property"]) for each in callback["inputs"]]
    _check_places(body.get("inputs"), inputs)
    states = [(each["id"], each["property"]) for each in callback["state"]]
    _check_places(body.get("state", []), states)
    names = {f"{name}.{kind}" for name, kind in inputs}
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(
        isinstance(name, str) and name in names for name in changed
    ):
        raise BadRequest("What changed is no input of the callback.")


def _place(output: Any) -> tuple[str, str]:
    return output.component_id, output.component_property


def _check_places(given: Any, wanted: Sequence[tuple[str, str]]) -> None:
    """The parts of the page that were sent are those of the callback, in order."""
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise BadRequest("The parts of a call are a list.")
    # A property that several callbacks set has a mark behind its name.
    found = [
        (each.get("id"), str(each.get("property")).partition("@")[0]) for each in given
    ]
    if found != list(wanted):
        raise BadRequest("The parts of the call are not those of the callback.")
