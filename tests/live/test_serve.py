"""Metrics and the page, over real connections and in a real browser."""

import json
import re
import socket
import sys
import urllib.error
import urllib.request
from contextlib import suppress

import pytest
from helpers.fake_nvml import FakeNvml
from helpers.live_pages import Trainer
from helpers.profiler.browser import browser, found
from prometheus_client.parser import text_string_to_metric_families

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.live.http.prometheus import metrics
from fastfeed.live.http.serve import CONNECTIONS, Server, parse_address
from fastfeed.live.nvml import Gpus
from fastfeed.live.watch import Monitor

# of every element with text of its own, against the page or its card
CONTRASTS = """(() => {
  const light = text => { const [r, g, b] = text.match(/[0-9.]+/g).map(x => x / 255)
    .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const style = node => getComputedStyle(node);
  const back = node => { while (style(node).backgroundColor === "rgba(0, 0, 0, 0)") node = node.parentElement;
    return light(style(node).backgroundColor); };
  const texts = [...document.querySelectorAll("h1,h2,p,span,dt,dd,footer")].filter(node => node.textContent.trim());
  return texts.map(node => {
    const pair = [light(style(node).color), back(node)].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05); });
})()"""


@pytest.fixture
def view(tmp_path):
    trainer = Trainer(tmp_path, name='a "quoted"\n<b>name</b>')
    watch = Monitor(
        [str(tmp_path)], None, Gpus(FakeNvml(gpm={2: 71.0, 40: 93.0})), clock=lambda: trainer.now
    )
    for _ in range(5):
        trainer.train(3, 0.25)
        view = watch.look()
    return view


@pytest.fixture
def server(view):
    server = Server("127.0.0.1", 0, "--web")
    server.view = view
    yield server
    server.close()


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
        return answer.headers, answer.read().decode()


def test_metrics_follow_the_conventions(view):
    text = metrics(view)
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
            assert (family.type == "counter") == sample.name.endswith("_total"), sample.name
            assert sample.name.startswith("fastfeed_")
    assert samples["fastfeed_images_total"][0][1] == 1200
    assert samples["fastfeed_wait_seconds_total"][0][1] == pytest.approx(3.75)
    assert samples["fastfeed_wait_ratio"][0][1] == pytest.approx(0.25)
    assert samples["fastfeed_gpu_nvjpg_ratio"][0][1] == pytest.approx(0.93)
    assert 'name="a \\"quoted\\"\\n<b>name</b>"' in text
    assert [
        value for labels, value in samples["fastfeed_state"] if labels["state"] == "SEVERE"
    ] == [1.0]
    assert sum(value for _, value in samples["fastfeed_state"]) == 1
    assert "fastfeed_bad_samples_total" in samples
    assert "fastfeed_cpu_throttled_ratio" not in samples or samples["fastfeed_cpu_throttled_ratio"]


def test_what_is_served(server):
    headers, text = get(server.url + "/metrics")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "fastfeed_images_total{" in text
    assert json.loads(get(server.url + "/data.json")[1])["feeds"][0]["state"] == "SEVERE"
    headers, page = get(server.url + "/")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert not re.search(
        r"src=|href=\"(?!data:)|https?://(?!www\.w3\.org/2000/svg)", page
    )  # nothing from elsewhere


@pytest.mark.parametrize(("path", "status"), [("/../etc/passwd", 404), ("/nothing", 404)])
def test_nothing_else_is_served(server, path, status):
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(server.url + path)
    assert raised.value.code == status
    raised.value.close()


def test_before_the_first_look(server):
    server.view = None
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(server.url + "/metrics")
    assert raised.value.code == 503
    raised.value.close()


def test_a_name_that_points_here_is_refused(server):
    """A page from elsewhere could otherwise read this one, under a name that its owner resolves to
    127.0.0.1.
    """
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(server.url + "/data.json", Host="evil.example")
    assert raised.value.code == 403
    raised.value.close()
    assert get(server.url + "/data.json", Host=f"localhost:{server.port}")


@pytest.mark.parametrize(
    "request_",
    [
        "GET /metrics HTTP/1.1\r\nHost: [\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: ]:x[\r\n\r\n",
        "GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET http://[/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        "GET / HTTP/9.9\r\n\r\n",
        "\x1b[2J\r\n\r\n",
    ],
)
def test_a_request_that_is_none_is_refused_and_prints_nothing(server, capfd, request_):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(request_.encode())
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert re.search(rb" [45]\d\d |Error code: 4", answer)
    assert capfd.readouterr().err == ""


def test_connections_above_the_limit_are_closed_at_once(server, monkeypatch):
    """Those that say nothing hold a thread each; once they are gone, others are answered."""
    opened = [
        socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(CONNECTIONS)
    ]
    for client in opened:
        client.sendall(b"GET / HTTP/1.1\r\n")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        with suppress(OSError):  # closed before it could ask
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(4096) == b""
    for client in opened:
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
        client.close()
    assert get(server.url + "/metrics")


def test_a_browser_that_leaves_before_its_answer_prints_nothing(server, view, monkeypatch, capfd):
    def leave(view):
        raise ConnectionResetError

    monkeypatch.setattr(server, "metrics", leave)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4096) == b""
    assert capfd.readouterr().err == ""


def test_a_name_cannot_steer_the_terminal_that_shows_the_metrics(tmp_path):
    trainer = Trainer(tmp_path, name='a\\b\x1b[2J\u202e"\n\x9b')
    trainer.train(1)
    trainer._page.set_stages({"\x1b[1m": (1, 1)})
    trainer.train(1)
    text = metrics(Monitor([str(tmp_path)], clock=lambda: trainer.now).look())
    assert 'name="a\\\\b\\\\x1b[2J\\\\u202e\\"\\n\\\\x9b"' in text
    assert text.replace("\n", "").isprintable()


def test_without_the_client_of_prometheus_the_page_is_served(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastfeed.live.http.prometheus", None)
    with pytest.raises(MissingExtra, match=r"--prometheus needs .*pip install 'fastfeed\[watch\]'"):
        Server("127.0.0.1", 0, "--prometheus")
    server = Server("127.0.0.1", 0, "--web")
    try:
        assert "fastfeed watch" in get(server.url + "/")[1]
        with pytest.raises(urllib.error.HTTPError):
            get(server.url + "/metrics")
    finally:
        server.close()


def test_it_listens_on_the_loopback_alone_unless_told_otherwise():
    assert parse_address(":9400", "--prometheus") == ("127.0.0.1", 9400)
    assert parse_address("[::1]:80", "--web") == ("::1", 80)
    server = Server("127.0.0.1", 0, "--web")
    assert not server.warning
    server.close()
    server = Server("0.0.0.0", 0, "--web")
    assert "anyone who can reach this machine" in server.warning
    server.close()


@pytest.mark.parametrize("text", ["9400x", ":", ":99999", "nowhere.example:80", "127.0.0.1"])
def test_addresses_are_checked(text):
    with pytest.raises(ConfigError, match="--web must be like"):
        parse_address(text, "--web")


def test_a_port_in_use_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="choose another port"):
            Server("127.0.0.1", taken.getsockname()[1], "--web")


@pytest.fixture(scope="module")
def chrome():
    with browser() as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.skipif(
    found() is None, reason="no Chromium; install it (Debian: apt-get install chromium)"
)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_in_a_browser(chrome, server, width, dark):
    with chrome.tab(server.url + "/", width, dark=dark, touch=width < 600) as tab:
        tab.wait("document.querySelector('article') !== null")
        text = tab.value("document.body.innerText")
        assert 'a "quoted"' in text
        assert "<b>name</b>" in text  # as text
        assert "SEVERE: waits 25% of the time for batches" in text
        assert "71.0 %" in text
        assert "SVG" not in text
        shown, room = tab.value(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert shown <= room
        back = tab.value("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")
        # the last minutes are the watch's own: a page that is opened later shows them as well
        assert (
            tab.value("document.querySelector('polyline').getAttribute('points').split(' ').length")
            >= 4
        )
        label = tab.value("document.querySelector('svg').getAttribute('aria-label')")
        assert "mean 25.0 %" in label
        assert tab.value("document.querySelectorAll('main[aria-label] article h2').length") == 1
        assert min(tab.value(CONTRASTS)) >= 4.5  # WCAG 2, AA
        assert tab.complaints() == []
        assert all(
            url == server.url + "/data.json" or url.startswith("data:") for url in tab.requests()
        )


@pytest.mark.slow
@pytest.mark.skipif(
    found() is None, reason="no Chromium; install it (Debian: apt-get install chromium)"
)
def test_the_page_says_that_the_watch_has_exited(chrome, view):
    server = Server("127.0.0.1", 0, "--web")
    server.view = view
    with chrome.tab(server.url + "/", 800) as tab:
        tab.wait("document.querySelector('article') !== null")
        server.close()
        tab.wait("document.getElementById('time').textContent.includes('has exited')")
