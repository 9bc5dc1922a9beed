import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedIndexInformer;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.Config;
import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.TreeMap;

/** A SharedInformerFactory of Kubernetes' own Java client, as its examples make it. */
public final class Official {
  public static void main(String[] args) throws Exception {
    var client = Config.fromToken(args[0], Files.readString(Path.of(args[2])).trim());
    client.setSslCaCert(new FileInputStream(args[1]));
    client.setHttpClient(client.getHttpClient().newBuilder().readTimeout(Duration.ZERO).build());
    var api = new CoreV1Api(client);
    var factory = new SharedInformerFactory(client);
    SharedIndexInformer<V1ConfigMap> informer = factory.sharedIndexInformerFor(
        (CallGeneratorParams params) -> api.listNamespacedConfigMap(args[3]).labelSelector(Protocol.SELECTOR)
            .resourceVersion(params.resourceVersion).timeoutSeconds(params.timeoutSeconds).watch(params.watch).buildCall(null),
        V1ConfigMap.class, V1ConfigMapList.class);
    informer.addEventHandler(new ResourceEventHandler<V1ConfigMap>() {
      public void onAdd(V1ConfigMap o) {
        event("add", o);
      }

      public void onUpdate(V1ConfigMap old, V1ConfigMap o) {
        event("update", o);
      }

      public void onDelete(V1ConfigMap o, boolean unknown) {
        event("delete", o);
      }
    });
    factory.startAllRegisteredInformers();
    while (!informer.hasSynced()) {
      Thread.sleep(10);
    }
    Protocol.synced();
    Protocol.answer(() -> {
      var state = new TreeMap<String, String>();
      for (var o : informer.getIndexer().list()) {
        state.put(o.getMetadata().getName(), Protocol.value(o.getMetadata().getAnnotations()));
      }
      return state;
    });
    System.exit(0);
  }

  private static void event(String what, V1ConfigMap o) {
    Protocol.event(what, o.getMetadata().getName(), o.getMetadata().getAnnotations());
  }
}
