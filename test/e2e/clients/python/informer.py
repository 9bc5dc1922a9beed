"""The SharedInformer of Kubernetes' Python client."""

from kubernetes import client
from kubernetes.informer import informer

import protocol

config = client.Configuration(host=protocol.SERVER)
config.ssl_ca_cert = protocol.CA
config.api_key = {"authorization": protocol.token()}
config.api_key_prefix = {"authorization": "Bearer"}
api = client.CoreV1Api(client.ApiClient(config))

shared = informer.SharedInformer(api.list_namespaced_config_map, namespace=protocol.NAMESPACE, label_selector=protocol.SELECTOR)
for kind in (informer.ADDED, informer.MODIFIED, informer.DELETED):
    shared.add_event_handler(kind, lambda o, kind=kind: protocol.event(kind, o.metadata.name, o.metadata.annotations))
protocol.answer(lambda: {o.metadata.name: protocol.value(o.metadata.annotations) for o in shared.cache.list()})
shared.start()
shared._thread.join()
