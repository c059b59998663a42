"""The page as a server on this machine."""

import errno
import ipaddress
import logging
import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

from dash import Dash, Input, Output, ctx, no_update, set_props
from dash import State as Kept
from dash.dcc.express import send_bytes
from flask import Response, request
from werkzeug.exceptions import BadRequest, HTTPException
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from icssl.app.explore import table_view, views
from icssl.app.explore.events import (
    BUTTONS,
    CLOUDS,
    SETTINGS,
    after_button,
    after_click,
    after_setting,
)
from icssl.app.explore.guard import client, guard
from icssl.app.explore.layout import page
from icssl.app.explore.sources import use_one_thread
from icssl.app.explore.state import State, from_link, to_link
from icssl.app.explore.uploads import Uploads, check_size, download, label_upload

_LOG = logging.getLogger(__name__)
_MOST_REQUEST = 2**24  # bytes; the page sends a file of MOST_BYTES at most, as base64
_PATIENCE = 30  # seconds in which a client sends or takes something
_PORTS_TRIED = 50


def build_app() -> Dash:
    """The page with its callbacks. Scripts and styles come from this machine."""
    app = Dash(
        "icssl.app.explore",
        title="icssl explore",
        update_title="",
        serve_locally=True,
        on_error=_tell,
    )
    app.layout = page
    app.server.config["MAX_CONTENT_LENGTH"] = _MOST_REQUEST
    uploads = Uploads()
    _add_events(app, uploads)
    _add_view(app, views.frame, views.OUTPUTS["frame"])
    _add_view(app, views.play, views.OUTPUTS["play"])
    _add_view(app, views.inside, views.OUTPUTS["inside"])
    _add_view(app, views.why, views.OUTPUTS["why"])
    _add_view(
        app, lambda state: table_view.data(state, uploads, client()), table_view.OUTPUTS
    )
    _add_refusal(app)
    _add_download(app, uploads)
    guard(app)
    return app


def _tell(error: Exception) -> None:
    """What nobody expected is said on the page, which lives on; the terminal says where."""
    if isinstance(error, HTTPException):
        raise error  # a request that no page of ours sends
    _LOG.error("The page could not answer.", exc_info=error)
    text = (
        f"That did not work, by a mistake of the page ({type(error).__name__}): the "
        "terminal where it runs says more."
    )
    set_props("message", {"children": text})


def _add_events(app: Dash, uploads: Uploads) -> None:
    """One callback for all that a person does: the address and the controls follow."""
    inputs = {
        "url": Input("url", "search"),
        **{name: Input(name, "value") for name in SETTINGS},
        **{name: Input(name, "n_clicks") for name in BUTTONS},
        **{name: Input(name, "clickData") for name in CLOUDS},
        "upload": Input("upload", "contents"),
        "file": Kept("upload", "filename"),
        "label_text": Kept("mark-label", "value"),
        "state": Kept("state", "data"),
    }
    outputs = {
        "state": Output("state", "data"),
        "url": Output("url", "search"),
        "message": Output("message", "children"),
        "targets": Output("target", "options"),
        "upload": Output("upload", "contents"),
        **{name: Output(name, "value") for name in SETTINGS},
        **{name: Output(name, "clickData") for name in CLOUDS},
    }

    @app.callback(output=outputs, inputs=inputs)
    def happen(**given: Any) -> dict[str, Any]:
        _check_texts(given, "url", "upload", "file", "label_text")
        before = None if given["state"] is None else _state_of(given["state"])
        event = str(ctx.triggered_id or "url")
        try:
            after, message = _next(before, event, given, uploads)
            if event == "url" and after == before:  # our own change of the address
                message = no_update
        except (ValueError, ImportError) as error:
            after, message = before or State(), str(error)
        shown = _shown(before, after, message, outputs)
        if event in (*CLOUDS, "upload"):
            shown[event] = None  # or the same click, the same file, would be no news
        if before is None or after.table != before.table:
            # With the value, not after it: a value that is no option would be dropped.
            shown["targets"] = uploads.columns(after.table, client())
        return shown


def _state_of(values: Any) -> State:
    """The state that the browser keeps for us; it sends no other."""
    try:
        return State.from_values(values)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _check_texts(given: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(given[name], str | None):
            raise BadRequest(f"{name} is a text.")


def _next(
    before: State | None, event: str, given: dict[str, Any], uploads: Uploads
) -> tuple[State, Any]:
    """The state after an event, and a message."""
    if event == "url" or before is None:
        return from_link(given["url"])
    if event in SETTINGS:
        return after_setting(before, event, given[event]), ""
    if event in CLOUDS:
        return after_click(before, event, given[event]), ""
    if event == "upload":
        return _uploaded(before, given, uploads), ""
    return after_button(before, event, str(given["label_text"] or "")), ""


def _uploaded(before: State, given: dict[str, Any], uploads: Uploads) -> State:
    if not given["upload"]:
        return before
    found = uploads.add(str(given["file"]), given["upload"], client())
    values = {**before.as_values(), "table": found.key, "target": found.guess}
    return State.from_values({**values, "marks": (), "row": 0})


def _shown(
    before: State | None, after: State, message: Any, outputs: dict[str, Any]
) -> dict[str, Any]:
    """What the page must change: everything at first, then what differs."""
    found: dict[str, Any] = dict.fromkeys(outputs, no_update)
    found["message"] = message
    if after == before:
        return found
    changed = {
        field.name
        for field in fields(State)
        if before is None or getattr(before, field.name) != getattr(after, field.name)
    }
    values = after.as_values()
    found |= {name: values[name] for name in SETTINGS if name in changed}
    return {**found, "state": values, "url": to_link(after)}


def _add_view(
    app: Dash,
    view: Callable[[State], dict[str, Any] | None],
    places: dict[str, tuple[str, str]],
) -> None:
    """A part of the page that is a function of the state; None where it is not shown."""

    @app.callback(
        output={name: Output(*place) for name, place in places.items()},
        inputs=[Input("state", "data")],
        prevent_initial_call=True,
    )
    def render(values: Any) -> dict[str, Any]:
        shown = view(_state_of(values))
        return dict.fromkeys(places, no_update) | (shown or {})


def _add_refusal(app: Dash) -> None:
    """A file that the browser does not send, because it is too large, is explained."""

    @app.callback(
        Output("message", "children", allow_duplicate=True),
        Input("dropped", "data"),
        prevent_initial_call=True,
    )
    def refuse(dropped: Any) -> Any:
        size = dropped.get("size") if isinstance(dropped, dict) else None
        if type(size) is not int or not 0 <= size < 2**63:
            raise BadRequest("A file has a name and a size.")
        try:
            check_size(str(dropped.get("name")), size)
        except ValueError as error:
            return str(error)
        return no_update


def _add_download(app: Dash, uploads: Uploads) -> None:
    @app.callback(
        Output("file", "data"),
        Output("message", "children", allow_duplicate=True),
        Input("download", "n_clicks"),
        Kept("state", "data"),
        prevent_initial_call=True,
    )
    def send(_: Any, values: Any) -> tuple[Any, str]:
        state = _state_of(values)
        try:
            upload = uploads.get(state.table, client())
            found, _warnings = label_upload(upload, state.target, state.marks)
            name, content = download(upload, found)
        except ValueError as error:
            return no_update, str(error)
        return send_bytes(content, name), ""


def listen(host: str, port: int) -> socket.socket:
    """A socket on ``port``, or on the first free one after it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = min(port + _PORTS_TRIED, 2**16) - 1
    for candidate in range(port, last + 1):
        waiting = socket.socket(family, socket.SOCK_STREAM)
        waiting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            waiting.bind((host, candidate))
        except OSError as error:
            waiting.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise ValueError(_refusal(host, candidate, error)) from error
        waiting.listen(128)
        return waiting
    raise ValueError(f"no free port from {port} to {last} on {host}.")


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return (
            f"port {port} on {host} is not open to this user: {error.strerror}. Give a "
            "port from 1024 on."
        )
    return f"{host} cannot be listened on: {error.strerror}."


def is_loopback(host: str) -> bool:
    """Whether a name or an address can only be reached from this machine.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "10.0.0.1")]
    [True, True, True, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host of a ``Host`` header, without its port; nothing where it is not one.

    Examples
    --------
    >>> host_of("localhost:8050"), host_of("[::1]:8050"), host_of("a@localhost")
    ('localhost', '::1', '')
    """
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # looked at only here: raises where it is no port
    except ValueError:
        return ""
    plain = parts.netloc == header and "@" not in header
    return parts.hostname or "" if plain else ""


def server_on(waiting: socket.socket, host: str) -> BaseWSGIServer:
    """The page served on a socket; on loopback only to those who ask for it by name."""
    app = build_app()
    address, port = waiting.getsockname()[:2]
    if is_loopback(address):
        _answer_only_loopback(app, host)
    server = make_server(
        host,
        port,
        app.server,
        threaded=True,
        fd=waiting.fileno(),
        request_handler=_QuietHandler,
    )
    waiting.close()  # the server has a copy of it
    return server


def _answer_only_loopback(app: Dash, host: str) -> None:
    """Else a page from elsewhere could have its own name point here, and read along."""

    def check_host() -> Response | None:
        asked = host_of(request.headers.get("Host", ""))
        if is_loopback(asked) or asked == host.lower():
            return None
        text = f"This page is not at {asked!r}: open it as localhost."
        return Response(text, 400, mimetype="text/plain")

    app.server.before_request(check_host)


class _QuietHandler(WSGIRequestHandler):
    """Says nothing of requests, of which a click makes several, nor of those that stop."""

    timeout = _PATIENCE  # of the socket: who sends nothing is dropped

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""

    def log_error(self, format: str, *args: Any) -> None:
        """Nothing: this is said of what is no HTTP, and of those who were dropped."""


def serve(server: BaseWSGIServer, address: str, *, browser: bool) -> None:
    """Until it is stopped; ``browser`` opens the page."""
    use_one_thread()
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        server.server_close()
