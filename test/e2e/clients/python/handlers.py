"""An operator of kopf, with handlers of all events."""

import asyncio

import kopf

import protocol


@kopf.on.login()
def login(**_):
    return kopf.ConnectionInfo(server=protocol.SERVER, ca_path=protocol.CA, scheme="Bearer", token=protocol.token())


@kopf.on.startup()
def settings(settings, **_):
    settings.posting.enabled = False
    settings.scanning.disabled = True


@kopf.on.event("configmaps")
def changed(event, name, labels, annotations, **_):
    if labels.get("seen") == "true":  # kopf would not report an object that loses the label
        protocol.event(event["type"] or "ADDED", name, annotations)
    else:
        protocol.forget(name)


protocol.answer()
asyncio.run(kopf.operator(namespaces=[protocol.NAMESPACE], standalone=True))
