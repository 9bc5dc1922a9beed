"""A list and watches of kubernetes_asyncio, which go on from where the last one ended."""

import asyncio

import aiohttp
from kubernetes_asyncio import client, watch

import protocol


async def main():
    config = client.Configuration(host=protocol.SERVER)
    config.ssl_ca_cert = protocol.CA
    config.api_key = {"BearerToken": "Bearer " + protocol.token()}
    arguments = {"namespace": protocol.NAMESPACE, "label_selector": protocol.SELECTOR}
    protocol.answer()
    version, synced = None, False
    async with client.ApiClient(config) as connection:
        api = client.CoreV1Api(connection)
        while True:
            stream = watch.Watch()
            try:
                if version is None:
                    listed = await api.list_namespaced_config_map(**arguments)
                    protocol.replace([(o.metadata.name, o.metadata.annotations) for o in listed.items])
                    version = listed.metadata.resource_version
                    if not synced:
                        protocol.say(what="synced")
                        synced = True
                async for event in stream.stream(api.list_namespaced_config_map, resource_version=version, allow_watch_bookmarks=True, **arguments):
                    version = stream.resource_version
                    if event["type"] != "BOOKMARK":
                        metadata = event["object"].metadata
                        protocol.event(event["type"], metadata.name, metadata.annotations)
            except client.ApiException as error:
                if error.status == 410:
                    version = None
                await asyncio.sleep(0.5)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
                await asyncio.sleep(0.5)


asyncio.run(main())
