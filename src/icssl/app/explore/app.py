"""The callbacks of the page, and the server that shows it on this machine."""

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
from dash import State as Current
from dash.dcc.express import send_bytes
from flask import Response, request
from werkzeug.exceptions import BadRequest, HTTPException
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from icssl._util.errors import error_text
from icssl.app.explore import page_views, table_view
from icssl.app.explore.clouds import limit_to_one_thread
from icssl.app.explore.events import (
    BUTTONS,
    CLOUDS,
    SELECTED,
    SETTINGS,
    after_button,
    after_click,
    after_setting,
)
from icssl.app.explore.guard import client, guard
from icssl.app.explore.layout import page
from icssl.app.explore.state import NO_ROW, READING, State, from_link, to_link
from icssl.app.explore.uploads import Uploads, check_size, download
from icssl.app.explore.waiting import PROGRESS, Waiting

_LOG = logging.getLogger(__name__)
_LARGEST_REQUEST = 2**24  # bytes; a file of up to MOST_BYTES is sent as base64
_TIMEOUT = 30  # seconds without a byte, after which a client is dropped
_PORTS_TRIED = 50


def build_app() -> Dash:
    """Build the page with its callbacks; scripts and styles come from this machine."""
    app = Dash(
        "icssl.app.explore",
        title="icssl explore",
        update_title="",
        serve_locally=True,
        on_error=_report_error,
    )
    app.layout = page
    app.server.config["MAX_CONTENT_LENGTH"] = _LARGEST_REQUEST
    uploads, waiting = Uploads(), Waiting()
    _add_events(app, uploads)
    for name, view in page_views.VIEWS.items():
        _add_view(app, name, view, page_views.OUTPUTS[name])

    def show_data(state: State) -> dict[str, Any] | None:
        with waiting.work_for(client()):
            return table_view.data(state, uploads, client())

    _add_view(app, "data", show_data, table_view.OUTPUTS)
    app.server.add_url_rule(PROGRESS, "progress", lambda: waiting.answer(client()))
    _add_refusal(app, uploads)
    _add_download(app, uploads)
    guard(app)
    return app


def _report_error(error: Exception) -> None:
    """Say on the page that there was an error of ours; the terminal shows where."""
    if isinstance(error, HTTPException):
        raise error  # a request that our page does not send
    _LOG.error("The page could not answer.", exc_info=error)
    text = (
        f"That did not work, because of an error in the page ({type(error).__name__}): see "
        "the terminal where it runs."
    )
    set_props("message", {"children": text})


def _add_events(app: Dash, uploads: Uploads) -> None:
    """Add the one callback for all that a person does.

    It changes the state; the address and the controls follow.
    """
    inputs = {
        "url": Input("url", "search"),
        **{name: Input(name, "value") for name in SETTINGS},
        **{name: Input(name, "n_clicks") for name in BUTTONS},
        **{name: Input(name, "clickData") for name in CLOUDS},
        "upload": Input("upload", "contents"),
        "file": Current("upload", "filename"),
        "label_text": Current("mark-label", "value"),
        "new_label": Current("mark-new", "value"),
        "state": Current("state", "data"),
    }
    outputs = {
        "state": Output("state", "data"),
        "url": Output("url", "search"),
        "message": Output("message", "children"),
        "targets": Output("target", "options"),
        "upload": Output("upload", "contents"),
        "new_label": Output("mark-new", "value"),
        **{name: Output(name, "value") for name in SETTINGS},
        **{name: Output(name, "clickData") for name in CLOUDS},
    }

    @app.callback(output=outputs, inputs=inputs)
    def handle(**values: Any) -> dict[str, Any]:
        _check_texts(values, "url", "upload", "file", "label_text", "new_label")
        before = None if values["state"] is None else _state_of(values["state"])
        event = str(ctx.triggered_id or "url")
        try:
            after, message = _next_state(before, event, values, uploads)
            if event == "url" and after == before:  # we changed the address ourselves
                message = no_update
        except (ValueError, ImportError) as error:
            after, message = before or State(), error_text(error)
            if event == "upload":
                message += _still_shown(after, uploads)
        changes = _changes(before, after, message, outputs)
        if event == "upload":  # also for a file that was forgotten, with its old settings
            changes["state"] = after.as_values()
        if event in (*CLOUDS, "upload"):
            changes[event] = None  # or the same click or file again would be no event
        if event == "upload":
            changes["target"] = after.target
        if before is None or event == "upload" or _read_anew(before, after):
            # With the value, not after it: a value that is no option would be dropped.
            changes["targets"] = table_view.target_options(after, uploads, client())
        if event == "mark":
            changes["new_label"] = ""
        if event in SELECTED and values[event] != getattr(after, event) != NO_ROW:
            changes[event] = getattr(after, event)  # the field may say a number below 0
        return changes


def _read_anew(before: State, after: State) -> bool:
    """Whether the columns of the table may have changed."""
    names = ("table", *READING)
    return any(getattr(before, name) != getattr(after, name) for name in names)


def _state_of(values: Any) -> State:
    """Return the state that the browser keeps for us; our page sends no other."""
    try:
        return State.from_values(values)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _check_texts(values: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(values[name], str | None):
            raise BadRequest(f"{name} is a text.")


def _next_state(
    before: State | None, event: str, values: dict[str, Any], uploads: Uploads
) -> tuple[State, Any]:
    """Return the state after an event, and a message."""
    if event == "url" or before is None:
        return from_link(values["url"])
    if event in SETTINGS:
        return after_setting(before, event, values[event]), ""
    if event in CLOUDS:
        return after_click(before, event, values[event]), ""
    if event == "upload":
        return _after_upload(before, values, uploads), ""
    label = values["new_label"] or values["label_text"]
    return after_button(before, event, str(label or "")), ""


def _after_upload(before: State, values: dict[str, Any], uploads: Uploads) -> State:
    if not values["upload"]:
        return before
    upload = uploads.add(str(values["file"]), values["upload"], client())
    if upload.key == before.table and before.target:
        return before  # the same file again: what was set for it stays
    settings = {**before.as_values(), "table": upload.key, "target": upload.guess}
    found_out = dict.fromkeys(READING, "")
    return State.from_values({**settings, **found_out, "marks": (), "row": NO_ROW})


def _still_shown(state: State, uploads: Uploads) -> str:
    """Say whose answer, with labels that were given to its rows, stands below a refusal."""
    try:
        return f" {uploads.get(state.table, client()).name} is still shown below."
    except ValueError:
        return ""


def _changes(
    before: State | None, after: State, message: Any, outputs: dict[str, Any]
) -> dict[str, Any]:
    """Return what the page must change: everything at first, then what differs."""
    changes: dict[str, Any] = dict.fromkeys(outputs, no_update)
    changes["message"] = message
    if after == before:
        return changes
    changed = {
        field.name
        for field in fields(State)
        if before is None or getattr(before, field.name) != getattr(after, field.name)
    }
    values = after.as_values()
    changes |= {name: values[name] for name in SETTINGS if name in changed}
    if after.row == NO_ROW and "row" in changed:
        changes["row"] = None  # an empty field, until the answer selects a row
    return {**changes, "state": values, "url": to_link(after)}


def _add_view(
    app: Dash,
    name: str,
    view: Callable[[State], dict[str, Any] | None],
    places: dict[str, tuple[str, str]],
) -> None:
    """Add a part of the page that is a function of the state; None hides it."""

    @app.callback(
        output={part: Output(*place) for part, place in places.items()},
        inputs=[Input("state", "data")],
        running=[(Output("page", f"data-busy-{name}"), "true", "false")],
        prevent_initial_call=True,
    )
    def render(values: Any) -> dict[str, Any]:
        contents = view(_state_of(values)) or {}
        row = contents.pop("first_row", None)
        if row is not None:  # as if a person had selected it
            set_props("row", {"value": row})
        return dict.fromkeys(places, no_update) | contents


def _add_refusal(app: Dash, uploads: Uploads) -> None:
    """Explain why the browser does not send a file that is too large."""

    @app.callback(
        Output("message", "children", allow_duplicate=True),
        Input("dropped", "data"),
        Current("state", "data"),
        prevent_initial_call=True,
    )
    def refuse(dropped: Any, values: Any) -> Any:
        size = dropped.get("size") if isinstance(dropped, dict) else None
        if type(size) is not int or not 0 <= size < 2**63:
            raise BadRequest("A file has a name and a size.")
        try:
            check_size(str(dropped.get("name")), size)
        except ValueError as error:
            return str(error) + _still_shown(_state_of(values), uploads)
        return no_update


def _add_download(app: Dash, uploads: Uploads) -> None:
    @app.callback(
        Output("file", "data"),
        Output("message", "children", allow_duplicate=True),
        Input("download", "n_clicks"),
        Current("state", "data"),
        prevent_initial_call=True,
    )
    def send(_: Any, values: Any) -> tuple[Any, str]:
        state = _state_of(values)
        try:
            upload = uploads.get(state.table, client())
            labelling, _warnings = table_view.label_table(state, upload)
            name, content = download(upload, labelling, state.marks)
        except ValueError as error:
            return no_update, error_text(error)
        return send_bytes(content, name), ""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``port``, or on the first free port after it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = min(port + _PORTS_TRIED, 2**16) - 1
    for candidate in range(port, last + 1):
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, candidate))
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise ValueError(_refusal(host, candidate, error)) from error
        listening.listen(128)
        return listening
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


def _host_of(header: str) -> str:
    """Return the host of a ``Host`` header, without its port; "" for a malformed one.

    Examples
    --------
    >>> _host_of("localhost:8050"), _host_of("[::1]:8050"), _host_of("a@localhost")
    ('localhost', '::1', '')
    """
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises for a malformed port
    except ValueError:
        return ""
    is_plain = parts.netloc == header and "@" not in header
    return parts.hostname or "" if is_plain else ""


def server_on(listening: socket.socket, host: str) -> BaseWSGIServer:
    """Return a server of the page on a socket.

    On loopback it answers only requests for a name of this machine.
    """
    app = build_app()
    address, port = listening.getsockname()[:2]
    if is_loopback(address):
        _answer_only_loopback(app, host)
    server = make_server(
        host,
        port,
        app.server,
        threaded=True,
        fd=listening.fileno(),
        request_handler=_QuietHandler,
    )
    listening.close()  # the server has a copy of it
    return server


def _answer_only_loopback(app: Dash, host: str) -> None:
    """Refuse other names, by which a page from elsewhere could read this one.

    Such a page lets its own name point to this machine (DNS rebinding).
    """

    def check_host() -> Response | None:
        asked = _host_of(request.headers.get("Host", ""))
        if is_loopback(asked) or asked == host.lower():
            return None
        text = f"This page is not at {asked!r}: open it as localhost."
        return Response(text, 400, mimetype="text/plain")

    app.server.before_request(check_host)


class _QuietHandler(WSGIRequestHandler):
    """A handler that logs no requests, of which a click makes several."""

    timeout = _TIMEOUT  # of the socket

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""

    def log_error(self, format: str, *args: Any) -> None:
        """Log nothing about clients that send no HTTP or were dropped."""


def serve(server: BaseWSGIServer, address: str, *, browser: bool) -> None:
    """Serve the page until Ctrl-C; ``browser`` opens it."""
    limit_to_one_thread()
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        server.server_close()
