package restart

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The pulse is an object that every informer sees; it counts.
const pulseNamespace, pulseName = "n1", "pulse"

// churn is what happens upstream all the while: objects are made, change, leave selectors and enter
// them, and go; and the pulse counts. That upstream is unreachable is no failure of it.
type churn struct {
	client kubernetes.Interface
	random *rand.Rand
	pulse  atomic.Int64 // as upstream has it
	writes atomic.Int64
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// churnEvery is how often something happens.
const churnEvery = 10 * time.Millisecond

func startChurn(t *testing.T, client kubernetes.Interface) *churn {
	t.Helper()
	for i := range 3 {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c := &churn{client: client, random: rand.New(rand.NewPCG(1, 1))} // #nosec G404 -- reproducible
	first := configMap(pulseNamespace, pulseName, "x", 1)
	if _, err := client.CoreV1().ConfigMaps(pulseNamespace).Create(t.Context(), first,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.done.Go(func() { c.run(ctx) })
	t.Cleanup(c.end)
	return c
}

// end stops it, and returns when nothing is written any more.
func (c *churn) end() {
	c.stop()
	c.done.Wait()
}

func (c *churn) run(ctx context.Context) {
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var err error
		if i%5 == 0 {
			err = c.beat(ctx)
		} else {
			err = c.change(ctx)
		}
		if err == nil {
			c.writes.Add(1)
		}
	}
}

func (c *churn) beat(ctx context.Context) error {
	next := int(c.pulse.Load()) + 1
	_, err := c.client.CoreV1().ConfigMaps(pulseNamespace).Update(ctx, configMap(pulseNamespace, pulseName, "x", next),
		metav1.UpdateOptions{})
	if err == nil {
		c.pulse.Store(int64(next))
	}
	return err
}

// change does something to one of a few objects. That it is not there, or is there already, is no
// matter.
func (c *churn) change(ctx context.Context) error {
	namespace, name := fmt.Sprint("n", c.random.IntN(3)), fmt.Sprint("object-", c.random.IntN(30))
	maps := c.client.CoreV1().ConfigMaps(namespace)
	o := configMap(namespace, name, []string{"x", "y", "z"}[c.random.IntN(3)], c.random.Int())
	if c.random.IntN(4) == 0 {
		return maps.Delete(ctx, name, metav1.DeleteOptions{})
	}
	_, err := maps.Update(ctx, o, metav1.UpdateOptions{})
	if err != nil {
		_, err = maps.Create(ctx, o, metav1.CreateOptions{})
	}
	return err
}

func configMap(namespace, name, app string, n int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app},
			Annotations: map[string]string{pulseName: strconv.Itoa(n)}}, // which metadata informers see, too
		Data: map[string]string{pulseName: strconv.Itoa(n)},
	}
}
