"""What the test reads and writes, see protocol_test.go."""

import json
import os
import sys
import threading

SERVER, CA, TOKEN, NAMESPACE = sys.argv[1:5]
SELECTOR = "seen=true"

_lock = threading.Lock()
_state = {}


def say(**line):
    with _lock:
        print(json.dumps(line), flush=True)


def value(annotations):
    return (annotations or {}).get("value", "")


def token():
    with open(TOKEN) as file:
        return file.read().strip()


def event(what, name, annotations):
    """Takes ADDED, MODIFIED or DELETED, and keeps the state that follows from them."""
    if what == "DELETED":
        _state.pop(name, None)
    else:
        _state[name] = value(annotations)
    say(what={"ADDED": "add", "MODIFIED": "update", "DELETED": "delete"}[what], name=name, value=value(annotations))


def replace(objects):
    """Takes a list: the state again."""
    names = {name for name, _ in objects}
    for name in [name for name in _state if name not in names]:
        event("DELETED", name, {})
    for name, annotations in objects:
        if name not in _state or _state[name] != value(annotations):
            event("MODIFIED" if name in _state else "ADDED", name, annotations)


def answer(state=lambda: dict(_state)):
    """Answers each line of standard input with the state, in a thread, and ends the program at its end."""

    def run():
        for _ in sys.stdin:
            say(what="state", objects=state())
        os._exit(0)

    threading.Thread(target=run, daemon=True).start()


def forget(name):
    """Takes that an object is no longer seen."""
    if name in _state:
        event("DELETED", name, {})
