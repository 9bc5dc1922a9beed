// An informer as users of the client write it.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import * as k8s from '@kubernetes/client-node';

const [server, caFile, tokenFile, namespace] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromClusterAndUser({ name: 'cluster', server, caFile }, { name: 'user', token: readFileSync(tokenFile, 'utf8').trim() });
const api = config.makeApiClient(k8s.CoreV1Api);
const labelSelector = 'seen=true';
const list = () => api.listNamespacedConfigMap({ namespace, labelSelector });
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list, labelSelector);

const say = (line) => console.log(JSON.stringify(line));
const value = (object) => object.metadata.annotations?.value ?? '';
for (const what of ['add', 'update', 'delete'])
  informer.on(what, (object) => say({ what, name: object.metadata.name, value: value(object) }));
informer.on('error', (error) => {
  console.error(String(error));
  setTimeout(start, 1000); // as its documentation says
});

createInterface({ input: process.stdin })
  .on('line', () => say({ what: 'state', objects: Object.fromEntries(informer.list().map((o) => [o.metadata.name, value(o)])) }))
  .on('close', () => process.exit(0));

// start returns when the informer has listed.
let synced = false;
async function start() {
  try {
    await informer.start();
    if (!synced) say({ what: 'synced' });
    synced = true;
  } catch (error) {
    console.error(String(error));
    setTimeout(start, 1000);
  }
}
await start();
