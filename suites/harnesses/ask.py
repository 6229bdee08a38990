"""Ask a model once, with tools: one line `NAME JSON` a tool call on stdout, the text on stderr.

    ask.py TOOLS.json        (MESSAGES, MODEL, OPENAI_BASE_URL, OPENAI_API_KEY from the environment)

Standard library only, so that it starts in milliseconds. Exit codes: 0 done; 1 the endpoint refused
the request; 4 it failed three times; 5 the budget is spent.
"""

import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TRIES = 3


def ask(body: str) -> tuple[int, bytes]:
    """Status and body of one request."""
    url = urlsplit(os.environ["OPENAI_BASE_URL"])
    secure = url.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    line = kind(url.hostname or "", url.port)
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none"),
    }
    line.request("POST", url.path + "/chat/completions", body, headers)
    reply = line.getresponse()
    return reply.status, reply.read()


def answer(body: str) -> dict[str, Any]:
    """The model's message; leaves with an exit code where there is none."""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(0.2 * 4**attempt)
        try:
            status, text = ask(body)
            if status == 200:
                return dict(json.loads(text)["choices"][0]["message"])
            said = f"status {status}: {text.decode(errors='replace')}"
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            status, said = 0, repr(error)
        if 400 <= status < 500:
            break
    print(f"the model's endpoint: {said}", file=sys.stderr)
    sys.exit(5 if status == 402 else 1 if 400 <= status < 500 else 4)


def one_line(call: dict[str, Any]) -> str:
    """A call as `NAME JSON`; in JSON a line can only end between values, where a space does too."""
    arguments = (call["function"]["arguments"] or "{}").replace("\r", " ").replace("\n", " ")
    return call["function"]["name"] + " " + arguments


def main() -> None:
    request = {
        "model": os.environ["MODEL"],
        "messages": json.loads(Path(os.environ["MESSAGES"]).read_bytes()),
        "tools": json.loads(Path(sys.argv[1]).read_bytes()),
    }
    if not request["tools"]:
        del request["tools"]
    message = answer(json.dumps(request))
    for call in message.get("tool_calls") or ():
        sys.stdout.buffer.write((one_line(call) + "\n").encode("utf-8", "backslashreplace"))
    print(message.get("content") or "", file=sys.stderr)


if __name__ == "__main__":
    main()
