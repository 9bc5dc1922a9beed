// An informer as users of the client write it: ConfigMaps of one namespace, told line by line. It knows nothing of proxies.
import * as k8s from '@kubernetes/client-node';

const [namespace, labelSelector] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(k8s.CoreV1Api);
const list = () => api.listNamespacedConfigMap({ namespace, labelSelector });
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list, labelSelector);

const tell = (what, object) =>
  console.log(JSON.stringify({ what, name: object?.metadata?.name, version: object?.metadata?.resourceVersion, data: object?.data }));
for (const what of ['add', 'update', 'delete', 'connect']) informer.on(what, (object) => tell(what, object));
informer.on('error', (error) => {
  console.log(JSON.stringify({ what: 'error', message: String(error) }));
  setTimeout(() => informer.start(), 1000); // as its documentation says
});
await informer.start();
