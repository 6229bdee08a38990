#!/bin/sh
# An agent in ten lines: show the model the tools, make the calls it asks for, stop.
# ask.py prints one line a call, `NAME JSON`; the model's text goes to stderr.
set -eu
tool --chat-tools > "$TMPDIR/tools.json" || exit 6
$ASK "$TMPDIR/tools.json" > "$TMPDIR/calls"
while read -r name arguments; do
    code=0
    tool "$name" "$arguments" < /dev/null || code=$?
    test "$code" -ne 3 || exit 6   # nobody answers; a tool's own error is the model's business
done < "$TMPDIR/calls"
