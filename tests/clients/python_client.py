"""The official Python client against the stream URLs under a prefix: create, append, read back, follow, delete.

Usage: python_client.py URL_PREFIX. Exits with 0 when everything held.
"""

import json
import sys
import threading

from durable_streams import DurableStream, stream


def text_is_read_back(prefix: str) -> None:
    url = f"{prefix}text"
    with DurableStream.create(url, content_type="text/plain") as handle:
        handle.append("first ")
        last = handle.append("second")
        assert handle.head().offset == last.next_offset
        with handle.stream(live=False) as response:
            assert response.read_text() == "first second"
            assert response.offset == last.next_offset
        with handle.stream(offset=last.next_offset, live=False) as response:
            assert response.read_bytes() == b""
        handle.delete()
        try:
            handle.head()
        except Exception as error:  # noqa: BLE001 - any refusal will do, silence will not
            assert "not found" in str(error).lower() or "404" in str(error), error
        else:
            raise AssertionError("a deleted stream still answers")


def bytes_are_read_back(prefix: str) -> None:
    payload = bytes(range(256)) * 16
    with DurableStream.create(f"{prefix}bytes", content_type="application/octet-stream", body=payload) as handle:
        handle.append(payload)
        with handle.stream(live=False) as response:
            assert response.read_bytes() == payload * 2


def json_is_followed(prefix: str, live: str) -> None:
    url = f"{prefix}follow-{live}"
    values = [{"n": n} for n in range(6)]
    with DurableStream.create(url, content_type="application/json") as handle:
        handle.append(values[0])
        failures = []

        def write() -> None:
            try:
                with DurableStream.connect(url) as writer:
                    for value in values[1:]:
                        writer.append(value)
            except Exception as error:  # noqa: BLE001 - reported by the main thread
                failures.append(error)

        writer = threading.Thread(target=write)
        got = []
        with stream(url, offset="-1", live=live) as response:
            for value in response.iter_json():
                got.append(value)
                # The reader is known to follow once it has the first value: only then is the rest written.
                if len(got) == 1:
                    writer.start()
                if len(got) == len(values):
                    break
        writer.join()
        assert not failures, failures
        assert got == values, json.dumps(got)


def main() -> None:
    prefix = sys.argv[1]
    text_is_read_back(prefix)
    bytes_are_read_back(prefix)
    for live in ("long-poll", "sse"):
        json_is_followed(prefix, live)


main()
