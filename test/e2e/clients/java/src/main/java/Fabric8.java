import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;

/** SharedIndexInformers of the fabric8 client, as its documentation makes them; the last argument is their number. */
public final class Fabric8 {
  public static void main(String[] args) throws Exception {
    var config = new ConfigBuilder().withAutoConfigure(false).withMasterUrl(args[0]);
    if (!args[1].isEmpty()) {
      config.withCaCertFile(args[1]).withOauthToken(Files.readString(Path.of(args[2])).trim());
    }
    int number = args.length > 4 ? Integer.parseInt(args[4]) : 1;
    try (var client = new KubernetesClientBuilder().withConfig(config.build()).build()) {
      List<SharedIndexInformer<ConfigMap>> informers = new ArrayList<>();
      for (int i = 0; i < number; i++) {
        informers.add(client.configMaps().inNamespace(args[3]).withLabel("seen", "true").inform(new Handler()));
      }
      Protocol.synced(); // inform returns when it has
      Protocol.answer(() -> {
        var state = new TreeMap<String, String>();
        for (int i = 0; i < number; i++) { // the objects of all but the first are named by their number, too
          String prefix = i == 0 ? "" : i + "/";
          for (var o : informers.get(i).getStore().list()) {
            state.put(prefix + o.getMetadata().getName(), Protocol.value(o.getMetadata().getAnnotations()));
          }
        }
        return state;
      });
    }
    System.exit(0);
  }

  private static final class Handler implements ResourceEventHandler<ConfigMap> {
    public void onAdd(ConfigMap o) {
      event("add", o);
    }

    public void onUpdate(ConfigMap old, ConfigMap o) {
      event("update", o);
    }

    public void onDelete(ConfigMap o, boolean unknown) {
      event("delete", o);
    }

    private static void event(String what, ConfigMap o) {
      Protocol.event(what, o.getMetadata().getName(), o.getMetadata().getAnnotations());
    }
  }
}
