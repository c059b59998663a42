"""The page of ``icssl explore`` among strangers: headers, limits, slow and odd clients."""

import base64
import copy
import hashlib
import json
import random
import re
import socket
import threading

import numpy as np
import pytest

pytest.importorskip("dash", reason="dash is not installed: pip install 'icssl[explore]'")

from icssl.app.explore import app as app_module
from icssl.app.explore import figures
from icssl.app.explore import uploads as tables
from icssl.app.explore.app import build_app, listen, server_on
from icssl.app.explore.state import State

CALLBACKS = "/_dash-update-component"


def encoded(content):
    return "data:text/csv;base64," + base64.b64encode(content).decode()


@pytest.fixture(scope="module")
def app():
    return build_app()


# Headers


@pytest.mark.parametrize(
    "path", ["/", "/_dash-layout", "/assets/style.css", "/nowhere/at/all"]
)
def test_every_answer_forbids_frames_and_scripts_from_elsewhere(app, path):
    with app.server.test_client().get(path) as answer:
        headers = answer.headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    policy = dict(
        rule.strip().partition(" ")[::2]
        for rule in headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in policy["script-src"]
    assert "http" not in headers["Content-Security-Policy"]


def test_every_script_in_the_page_is_allowed_by_its_hash(app):
    answer = app.server.test_client().get("/")
    page = re.sub(r"<!--.*?-->", "", answer.get_data(as_text=True), flags=re.DOTALL)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    run = [text for about, text in scripts if text and "application/json" not in about]
    assert run
    for text in run:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in answer.headers["Content-Security-Policy"]


def test_a_refused_host_has_the_headers_too():
    server = server_on(listen("127.0.0.1", 8450), "127.0.0.1")
    try:
        answer = server.app.test_client().get("/", headers={"Host": "evil.example"})
        assert answer.status_code == 400
        assert answer.headers["X-Frame-Options"] == "DENY"
    finally:
        server.server_close()


def test_a_browser_gets_a_number_of_its_own_that_scripts_cannot_read(app):
    first, second = (app.server.test_client() for _ in range(2))
    given = [client.get("/").headers["Set-Cookie"] for client in (first, second)]
    assert len({cookie.partition(";")[0] for cookie in given}) == 2
    for cookie in given:
        assert re.match(r"icssl_explore=[\w-]{43};", cookie)
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
    assert "Set-Cookie" not in first.get("/").headers  # it is known now
    forged = {"Cookie": "icssl_explore=me"}
    assert "Set-Cookie" in app.server.test_client().get("/", headers=forged).headers


# Uploads of several people


def small(number):
    return f"{number}.csv", encoded(b"a,label\n1,x\n2,y\n3,\n%d,\n" % number)


def test_uploads_of_one_client_do_not_push_out_those_of_another():
    uploads = tables.Uploads()
    mine = uploads.add(*small(0), "me")
    others = [uploads.add(*small(number), "other") for number in range(1, 20)]
    assert uploads.get(mine.key, "me") == mine
    for upload in others[-4:]:
        assert uploads.get(upload.key, "other") == upload
    with pytest.raises(ValueError, match="drop the file again"):
        uploads.get(others[0].key, "other")


def test_a_table_is_for_the_client_that_brought_it():
    uploads = tables.Uploads()
    mine = uploads.add(*small(0), "me")
    with pytest.raises(ValueError, match="drop the file again"):
        uploads.get(mine.key, "other")
    assert uploads.columns(mine.key, "other") == []
    assert uploads.columns(mine.key, "me") == ["a", "label"]


def test_when_the_memory_for_all_is_spent_a_new_table_is_refused_and_old_ones_stay():
    size = tables.read_upload(*small(0)).size
    now = 0.0
    uploads = tables.Uploads(3 * size + size // 2, lambda: now)
    kept = {name: uploads.add(*small(0), name) for name in ("a", "b", "c")}
    with pytest.raises(ValueError, match="as many tables of other people as it can"):
        uploads.add(*small(0), "d")
    with pytest.raises(ValueError, match="as many tables of other people as it can"):
        uploads.add(*small(1), "a")
    for name, upload in kept.items():
        assert uploads.get(upload.key, name) == upload
    now = 2 * 3600.0
    uploads.get(kept["b"].key, "b")  # is still there, the others went away
    uploads.add(*small(0), "d")
    assert uploads.get(kept["b"].key, "b")
    with pytest.raises(ValueError, match="drop the file again"):
        uploads.get(kept["a"].key, "a")


# Requests that the page does not send


def call_of(app, output):
    """A request to the callback that sets ``output``, as the browser sends it."""
    client = app.server.test_client()
    listed = client.get("/_dash-dependencies").get_json()
    (spec,) = [each for each in listed if each["output"].startswith(output)]
    places = [place.rsplit(".", 1) for place in spec["output"].strip(".").split("...")]
    outputs = [{"id": name, "property": prop} for name, prop in places]
    state = State().as_values()
    values = {("state", "data"): state, ("url", "search"): "?n=20"}
    values |= {("upload", "filename"): "a.csv", ("mark-label", "value"): "x"}
    values |= {("dropped", "data"): {"name": "a.csv", "size": 2**30}}
    values |= {(name, "value"): state[name] for name in state}

    def with_values(parts):
        return [
            {**part, "value": values.get((part["id"], part["property"]))} for part in parts
        ]

    return {
        "output": spec["output"],
        "outputs": outputs if spec["output"].startswith("..") else outputs[0],
        "inputs": with_values(spec["inputs"]),
        "state": with_values(spec["state"]),
        "changedPropIds": [f"{part['id']}.{part['property']}" for part in spec["inputs"]][
            :1
        ],
    }


@pytest.fixture(scope="module")
def calls(app):
    names = ["..state.data", "..page.className", "..play_cloud", "..inside_cloud"]
    names += ["..why_cloud", "..data_cloud", "message.children", "..file.data"]
    return [call_of(app, name) for name in names]


def test_calls_as_the_page_sends_them_are_answered(app, calls, caplog):
    client = app.server.test_client()
    for call in calls:
        answer = client.post(CALLBACKS, json=call)
        assert answer.status_code in (200, 204), (call["output"], answer.data)
    assert not caplog.records


ODD = [
    None,
    True,
    7,
    -1,
    1.5,
    1e308,
    float("nan"),
    float("inf"),
    10**400,
    "",
    "x",
    "\ud800",
]
ODD += ["state.data", [], {}, [[]], [[1, 2, 3]], [[1, "x"]], [{"a": 1}], {"id": []}]
ODD += [{"points": 7}, {"points": [7]}, {"points": [{"customdata": True}]}, "\x1b[2J" * 9]


def mutate(value, rng):
    """A copy of a JSON value with something odd, or nothing, at a random place."""
    value = copy.deepcopy(value)
    node = value
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        if not len(keys):
            return value
        key = rng.choice(list(keys))
        inner = node[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.8:
            node = inner
            continue
        if rng.random() < 0.2:
            del node[key]
        else:
            node[key] = rng.choice(ODD)
        return value


def mutated_call(call, rng):
    """A call with an odd part, or with an odd value of what was touched or is kept."""
    if rng.random() < 0.3:
        return mutate(mutate(call, rng), rng)
    call = copy.deepcopy(call)
    touched = rng.choice(call["inputs"])
    call["changedPropIds"] = [f"{touched['id']}.{touched['property']}"]
    part = touched if rng.random() < 0.6 else rng.choice([*call["inputs"], *call["state"]])
    if isinstance(part["value"], dict) and rng.random() < 0.8:
        part["value"] = mutate(part["value"], rng)
    else:
        part["value"] = rng.choice(ODD)
    return call


def test_mutated_calls_are_refused_or_answered_and_never_a_traceback(
    app, calls, caplog, capfd
):
    rng = random.Random(0)
    client = app.server.test_client()
    statuses = []
    for number in range(800):
        call = mutated_call(calls[number % len(calls)], rng)
        answer = client.post(
            CALLBACKS, data=json.dumps(call), content_type="application/json"
        )
        statuses.append(answer.status_code)
        assert answer.status_code in (200, 204, 400), json.dumps(call)[:2000]
        said = answer.get_data(as_text=True)
        assert "error in the page" not in said, (said[:300], json.dumps(call)[:2000])
    assert statuses.count(400) > 200
    assert statuses.count(200) > 100
    assert not caplog.records
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'{"output": ["x"]}',
        b'{"output": "nothing.here"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 5000,
    ],
    ids=repr,
)
def test_what_is_no_call_at_all_is_a_bad_request(app, body, caplog, capfd):
    client = app.server.test_client()
    answer = client.post(CALLBACKS, data=body, content_type="application/json")
    assert answer.status_code == 400
    assert not caplog.records
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["nothing/x.js", "dash/../../x", "dash/nothing.js"])
def test_a_script_that_is_not_there_is_not_found(app, path, caplog):
    answer = app.server.test_client().get(f"/_dash-component-suites/{path}")
    assert answer.status_code == 404
    assert not caplog.records


# Clients that send nothing


@pytest.fixture
def served(monkeypatch):
    """The port of a page that waits a tenth of a second for its clients."""
    monkeypatch.setattr(app_module._QuietHandler, "timeout", 0.1)
    waiting = listen("127.0.0.1", 8460)
    port = waiting.getsockname()[1]
    server = server_on(waiting, "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /_dash-update-component HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
    ],
)
def test_a_client_that_stops_sending_is_dropped(served, begun, capfd):
    with socket.create_connection(("127.0.0.1", served), timeout=60) as client:
        client.sendall(begun)
        received = b""
        while part := client.recv(4096):  # without a limit it would wait for ever
            received += part
    assert received == b"" or received.startswith(b"HTTP/1.1 400")
    with socket.create_connection(("127.0.0.1", served), timeout=60) as other:
        other.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert other.recv(15).startswith(b"HTTP/1.1 200")
    assert capfd.readouterr().err == ""


def test_the_page_is_patient_with_a_click_and_not_for_ever():
    assert 5 <= app_module._QuietHandler.timeout <= 120


# Names in plots


@pytest.mark.parametrize("n", [30, 1500])
def test_plotly_finds_no_tags_entities_or_templates_in_names(n):
    names = ["<b>%{customdata}</b>", "<a href='https://x.example'>&amp;</a>"]
    points = np.random.default_rng(0).standard_normal((n, 2))
    points[:2] = [[-5, 0], [5, 0]]  # far apart: there is room for both names
    given = np.full(n, -1)
    given[:2] = [0, 1]
    figure = figures.cloud_figure(points, np.arange(n) % 2, given, names, selected=0)
    assert not re.search(r"<(?!/?b>)|%\{|template", json.dumps(figure))
    shown = [trace["text"][0] for trace in figure["data"] if "text" in trace]
    assert shown == [
        "<b>&lt;b&gt;&#37;{customdata}&lt;/b&gt;</b>",
        "<b>&lt;a href='https://x.example'&gt;&amp;amp;&lt;/a&gt;</b>",
    ]
    assert {trace["type"] for trace in figure["data"] if "text" in trace} == {"scatter"}
