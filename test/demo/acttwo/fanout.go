package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	clients      = 200
	writes       = 100
	writeEvery   = 20 * time.Millisecond
	fanOutBudget = 3 * time.Minute
	tickerName   = "ticker"
)

// result is what one round of watches cost and brought.
type result struct {
	before, open figures // at kube-apiserver, without the watches and with all of them
	after        figures // when every event has arrived
	delivered    int
	delays       []time.Duration // of each delivery, from the moment the write was sent
}

// fanOut lets many clients watch one ConfigMap that changes: through the proxy and, where the
// cluster is the demo's own, directly.
func (s *show) fanOut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fanOutBudget)
	defer cancel()
	through, err := s.measure(ctx, &rest.Config{Host: s.proxy.Server})
	if err != nil {
		return fmt.Errorf("watches through Spillway: %w", err)
	}
	columns, results := []string{"through Spillway"}, []*result{through}
	if s.controlPlane != nil {
		s.console.Line("and the same without Spillway …")
		direct, err := s.measure(ctx, s.upstream)
		if err != nil {
			return fmt.Errorf("watches straight at kube-apiserver: %w", err)
		}
		columns, results = append(columns, "without it"), append(results, direct)
	}
	s.print(columns, results)
	return nil
}

// measure runs one round: open the watches, write, and wait until every client has seen every
// write.
func (s *show) measure(ctx context.Context, config *rest.Config) (*result, error) {
	client, err := kubernetes.NewForConfig(unthrottled(config))
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	configMaps := client.CoreV1().ConfigMaps(namespace)
	r := &result{before: s.figures(ctx)}
	list, err := configMaps.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	watches, err := openWatches(ctx, configMaps, list.ResourceVersion)
	defer func() {
		for _, w := range watches {
			w.Stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	r.open = s.figures(ctx)

	group, groupCtx := errgroup.WithContext(ctx)
	delays := make([][]time.Duration, len(watches))
	for i, w := range watches {
		group.Go(func() (err error) {
			delays[i], err = follow(groupCtx, w)
			return err
		})
	}
	group.Go(func() error { return tick(groupCtx, configMaps) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r.after = s.figures(ctx)
	r.delays = slices.Concat(delays...)
	r.delivered = len(r.delays)
	return r, configMaps.Delete(ctx, tickerName, metav1.DeleteOptions{})
}

// openWatches opens the watches a few at a time. On error too, those that it returns are open.
func openWatches(ctx context.Context, configMaps typed.ConfigMapInterface, rv string) ([]watch.Interface, error) {
	opened := make(chan watch.Interface, clients)
	group, _ := errgroup.WithContext(ctx) // its context would end the watches with the group
	group.SetLimit(20)
	for range clients {
		group.Go(func() error {
			w, err := configMaps.Watch(ctx, metav1.ListOptions{
				ResourceVersion: rv, FieldSelector: "metadata.name=" + tickerName, TimeoutSeconds: new(int64(600)),
			})
			if err == nil {
				opened <- w
			}
			return err
		})
	}
	err := group.Wait()
	close(opened)
	return slices.Collect(func(yield func(watch.Interface) bool) {
		for w := range opened {
			yield(w)
		}
	}), err
}

// tick creates the ConfigMap and updates it; its data are the number of the write, and when it was
// sent.
func tick(ctx context.Context, configMaps typed.ConfigMapInterface) error {
	every := time.NewTicker(writeEvery)
	defer every.Stop()
	ticker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: tickerName}}
	for n := range writes {
		ticker.Data = map[string]string{"n": strconv.Itoa(n), "sent": strconv.FormatInt(time.Now().UnixNano(), 10)}
		write := configMaps.Update
		if n == 0 {
			write = func(ctx context.Context, c *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
				return configMaps.Create(ctx, c, metav1.CreateOptions{})
			}
		}
		written, err := write(ctx, ticker, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("write %d: %w", n, err)
		}
		ticker = written
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// follow reads one watch until it has brought every write, each once and in order, and returns how
// long each took.
func follow(ctx context.Context, w watch.Interface) ([]time.Duration, error) {
	delays := make([]time.Duration, 0, writes)
	for len(delays) < writes {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return nil, fmt.Errorf("a watch ended after %d of %d events", len(delays), writes)
			}
			configMap, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				return nil, fmt.Errorf("a watch brought %s: %v", event.Type, event.Object)
			}
			if got := configMap.Data["n"]; got != strconv.Itoa(len(delays)) {
				return nil, fmt.Errorf("a watch brought write %s after %d others", got, len(delays))
			}
			sent, err := strconv.ParseInt(configMap.Data["sent"], 10, 64)
			if err != nil {
				return nil, err
			}
			delays = append(delays, time.Since(time.Unix(0, sent)))
		case <-ctx.Done():
			return nil, fmt.Errorf("a watch brought %d of %d events: %w", len(delays), writes, context.Cause(ctx))
		}
	}
	return delays, nil
}

// print shows the results side by side.
func (s *show) print(columns []string, results []*result) {
	rows := []struct {
		label string
		value func(*result) string
	}{
		{"watches of configmaps open at kube-apiserver", func(r *result) string {
			if r.before.err != nil || r.open.err != nil {
				return "unknown"
			}
			return fmt.Sprintf("%d → %d", r.before.watches, r.open.watches)
		}},
		{"events received, in order, none missing", func(r *result) string {
			return fmt.Sprintf("%d of %d", r.delivered, clients*writes)
		}},
		{"median time from write to receipt", func(r *result) string {
			slices.Sort(r.delays)
			return fmt.Sprintf("%.1f ms", r.delays[len(r.delays)/2].Seconds()*1000)
		}},
		{"CPU time of kube-apiserver for it", func(r *result) string {
			if r.open.err != nil || r.after.err != nil {
				return "unknown"
			}
			return fmt.Sprintf("%.2f s", r.after.cpu-r.open.cpu)
		}},
	}
	line := fmt.Sprintf("%-46s", fmt.Sprintf("%d clients, %d writes", clients, writes))
	for _, column := range columns {
		line += fmt.Sprintf("%18s", column)
	}
	s.console.Line("%s", line)
	for _, row := range rows {
		line := fmt.Sprintf("%-46s", row.label)
		for _, r := range results {
			line += fmt.Sprintf("%18s", row.value(r))
		}
		s.console.Line("%s", line)
	}
	if err := results[0].before.err; err != nil {
		s.console.Line("(unknown, because kube-apiserver's own metrics cannot be read: %v)", err)
	}
}
