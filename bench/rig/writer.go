package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// Writer changes objects straight at an API server: one annotation of each, which says when the
// write began.
type Writer struct {
	client  *http.Client
	targets []string // URLs
	turn    int      // of WriteSpread
}

// NewWriter writes to the objects at these paths of the first kube-apiserver, one after the other.
func (p *Pair) NewWriter(paths []string) *Writer {
	w := &Writer{client: NewTLSClient(p.Config().BearerToken)}
	for _, path := range paths {
		w.targets = append(w.targets, p.ControlPlane.URL()+path)
	}
	return w
}

// StampPrefix begins a stamp: it is followed by the nanoseconds since 1970, 19 digits. Nothing else
// in an object contains it, and no encoding changes it.
const StampPrefix = "@@"

// outstanding is how many writes may be under way at once.
const outstanding = 32

// Run writes at a rate, in bursts of so many at once, and returns how many writes it made.
func (w *Writer) Run(ctx context.Context, perSecond float64, burst int, while time.Duration) (int, error) {
	return pace(ctx, perSecond, burst, while, func(ctx context.Context, n int) error {
		_, err := w.stamp(ctx, w.targets[n%len(w.targets)])
		return err
	})
}

// pace makes writes at a rate, in bursts of so many at once, and returns how many. Writes that take
// longer than their turn delay none until there are too many of them.
func pace(ctx context.Context, perSecond float64, burst int, while time.Duration,
	write func(ctx context.Context, n int) error) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(outstanding)
	began, n := time.Now(), 0
	for ctx.Err() == nil {
		due := time.Duration(float64(n) / perSecond * float64(time.Second))
		if due >= while || time.Since(began) >= while {
			break
		}
		select {
		case <-time.After(due - time.Since(began)):
		case <-ctx.Done():
		}
		for range burst {
			turn := n
			n++
			group.Go(func() error { return write(ctx, turn) })
		}
	}
	return n, group.Wait()
}

// WriteSpread writes once to n of the objects, spread evenly over all, each time to others, and
// returns the greatest resourceVersion.
func (w *Writer) WriteSpread(ctx context.Context, n int) (uint64, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(outstanding)
	w.turn++
	versions := make([]uint64, n)
	for i := range n {
		target := w.targets[(i*len(w.targets)/n+w.turn)%len(w.targets)]
		group.Go(func() (err error) {
			versions[i], err = w.stamp(ctx, target)
			return err
		})
	}
	err := group.Wait()
	return slices.Max(versions), err
}

// stamp writes to one object and returns its new resourceVersion.
func (w *Writer) stamp(ctx context.Context, target string) (uint64, error) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"at":"%s%d"}}}`, StampPrefix, time.Now().UnixNano())
	answer, err := send(ctx, w.client, http.MethodPatch, target, "application/merge-patch+json", patch)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(field(answer, "resourceVersion"), 10, 64)
}

// send sends a request with a body and takes any 2xx.
func send(ctx context.Context, client *http.Client, method, target, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if response.StatusCode/100 != 2 {
		return nil, errors.Join(&StatusError{response.StatusCode, string(answer)}, err)
	}
	return answer, err
}

// Create creates n objects in a collection of the first kube-apiserver, as many at once as it takes
// well. object makes the JSON of one.
func (p *Pair) Create(ctx context.Context, collection string, n int, object func(i int) []byte) error {
	client := NewTLSClient(p.Config().BearerToken)
	defer client.CloseIdleConnections()
	began := time.Now()
	Say("creating %d objects in %s", n, collection)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(outstanding)
	for i := range n {
		group.Go(func() error {
			_, err := send(ctx, client, http.MethodPost, p.ControlPlane.URL()+collection, "application/json", object(i))
			return err
		})
	}
	err := group.Wait()
	Say("created %d objects in %s", n, time.Since(began).Round(time.Second))
	return err
}
