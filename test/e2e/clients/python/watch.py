"""A list and watches of Kubernetes' Python client, which go on from where the last one ended."""

import time

import urllib3
from kubernetes import client, watch

import protocol

config = client.Configuration(host=protocol.SERVER)
config.ssl_ca_cert = protocol.CA
config.api_key = {"authorization": protocol.token()}
config.api_key_prefix = {"authorization": "Bearer"}
api = client.CoreV1Api(client.ApiClient(config))
arguments = {"namespace": protocol.NAMESPACE, "label_selector": protocol.SELECTOR}

protocol.answer()
version, synced = None, False
while True:
    stream = watch.Watch()
    try:
        if version is None:
            listed = api.list_namespaced_config_map(**arguments)
            protocol.replace([(o.metadata.name, o.metadata.annotations) for o in listed.items])
            version = listed.metadata.resource_version
            if not synced:
                protocol.say(what="synced")
                synced = True
        for event in stream.stream(api.list_namespaced_config_map, resource_version=version, allow_watch_bookmarks=True, **arguments):
            version = stream.resource_version
            if event["type"] != "BOOKMARK":
                metadata = event["object"].metadata
                protocol.event(event["type"], metadata.name, metadata.annotations)
    except client.ApiException as error:
        if error.status == 410:
            version = None
        time.sleep(0.5)
    except urllib3.exceptions.HTTPError:
        version = version and stream.resource_version or version
        time.sleep(0.5)
