"""`gifair watch`: the page is live, for this machine alone."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request

import pytest
from browser import Browser, chromium
from by_hand import small_run

from gifair_ray.analysis.live import Live
from gifair_ray.cli.serving import HOST, server
from gifair_ray.errors import BadInput
from gifair_ray.results import Written, write_segment


def write(folder, status, evaluations=3):
    """A run's folder as it is after so many evaluations."""
    run = small_run(status=status)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in run.tables.items():
        if "evaluation" in table.column_names:
            table = table.filter(table["evaluation"].to_numpy() < evaluations)
        if len(table):
            write_segment(folder, name, Written(), table)
    (folder / "manifest.json").write_text(json.dumps(dict(run.manifest)))


@pytest.fixture
def address(tmp_path):
    """A server of what is below tmp_path/runs, with one run that has not evaluated yet."""
    write(tmp_path / "runs" / "a", "running", evaluations=0)
    with server(Live([str(tmp_path / "runs")], None), 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://{HOST}:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return answer.status, answer.headers, answer.read()


def refused(url, **headers):
    with pytest.raises(urllib.error.HTTPError) as error:
        get(url, **headers)
    error.value.close()
    return error.value.code


def test_the_content_changes_when_the_folder_does(address, tmp_path):
    content = f"{address}/content.json"
    _, headers, body = get(content)
    told = json.loads(body)
    assert "sections" not in told
    assert "wait for the first evaluation" in told["waiting"]
    assert not told["finished"]
    assert refused(content, **{"If-None-Match": headers["ETag"]}) == 304
    write(tmp_path / "runs" / "a", "running", evaluations=2)
    _, headers, body = get(content, **{"If-None-Match": headers["ETag"]})
    told = json.loads(body)
    assert told["sections"][0]["id"] == "summary"
    assert told["live"] == "live: GIFAIR, round 2; 0 of 1 run(s) ended"
    write(tmp_path / "runs" / "a", "done")
    write(tmp_path / "runs" / "b", "done")
    told = json.loads(get(content)[2])
    assert told["finished"]
    assert told["live"] == "2 run(s), all ended"


def test_only_this_machine_is_served(address):
    status, headers, body = get(f"{address}/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!doctype html>")
    assert refused(f"{address}/etc/passwd") == 404
    assert refused(f"{address}/content.json", Host="evil.example:80") == 403
    assert address.startswith("http://127.0.0.1:")


def test_what_is_no_run_is_refused_before_anything_is_served(tmp_path):
    with pytest.raises(BadInput, match="no run in"):
        Live([str(tmp_path)], None)
    write(tmp_path / "a", "done")
    live = Live([str(tmp_path)], None)
    with server(live, 0) as taken, pytest.raises(BadInput, match="choose another --port"):
        server(live, taken.server_address[1])


@pytest.mark.skipif(chromium() is None, reason="there is no Chromium on the PATH")
def test_the_page_follows_the_run(address, tmp_path):
    browser = Browser(chromium(), tmp_path / "profile")
    try:
        browser.window(1000)
        browser.open(f"{address}/")
        browser.until("document.getElementById('waiting')?.textContent.startsWith('Nothing to')")
        write(tmp_path / "runs" / "a", "running", evaluations=2)
        last = "document.getElementById('over-time-0')?.data?.at(-1).x.length"
        browser.until(f"{last} === 2")
        write(tmp_path / "runs" / "a", "done")
        browser.until(f"{last} === 3")
        browser.until("document.getElementById('live').textContent === '1 run(s), all ended'")
        time.sleep(0.2)
        assert browser.errors == []
    finally:
        browser.close()
