package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"

	"spillway/bench/rig"
)

// besieger is the first argument of the process that holds the hostile watches. It runs at the
// lowest priority: in the field its clients have machines of their own, and here they are not to
// take the processor from the client that is measured.
const besieger = "besiege"

// order is what a besieger is to do, as JSON.
type order struct {
	URL, Token string
	Attack     attackKind
}

// hostileWatches is the hostile watches that are open.
type hostileWatches struct {
	outcome
	stop func()
}

// outcome is what became of the watches.
type outcome struct{ Open, Refused, Failed int64 }

func (g *hostileWatches) end() { g.stop() }

// besiege opens the watches of an attack from a process of its own, and returns when each is open
// or refused.
func (s *show) besiege(server rig.Server, a attackKind) (*hostileWatches, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args, err := json.Marshal(order{server.URL, s.mallory, a})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("nice", "-n", "19", self, besieger, string(args)) // #nosec G204 -- ourselves
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := rig.Start(cmd); err != nil {
		return nil, err
	}
	g := &hostileWatches{stop: func() { _, _ = stdin.Close(), cmd.Wait() }}
	if err := json.NewDecoder(stdout).Decode(&g.outcome); err != nil {
		g.end()
		return nil, fmt.Errorf("the process of the hostile watches: %w", err)
	}
	return g, nil
}

// besiege is the besieger's main: it opens the watches, writes the outcome to stdout, and reads
// events until stdin ends.
func besiege(args string) error {
	var o order
	if err := json.Unmarshal([]byte(args), &o); err != nil {
		return err
	}
	var open, refused, failed atomic.Int64
	clients := make([]*http.Client, 1+o.Attack.Watches/200)
	for i := range clients {
		clients[i] = rig.NewHTTP2Client(o.Token)
	}
	var opening sync.WaitGroup
	turns := make(chan struct{}, 8)
	for i := range o.Attack.Watches {
		turns <- struct{}{}
		number := i
		if o.Attack.Equal {
			number = 0
		}
		opening.Add(1)
		go func() {
			body, err := rig.Get(context.Background(), clients[i%len(clients)], o.target(number))
			<-turns
			var status *rig.StatusError
			switch {
			case err == nil:
				open.Add(1)
			case errors.As(err, &status) && status.Code == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				if failed.Add(1) == 1 {
					rig.Say("a hostile watch: %.300v", err)
				}
			}
			opening.Done()
			if err == nil {
				_, _ = io.Copy(io.Discard, body)
			}
		}()
	}
	opening.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(outcome{open.Load(), refused.Load(), failed.Load()}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func (o order) target(number int) string {
	return o.URL + "/api/v1/watch/namespaces/a/configmaps?resourceVersion=0&timeoutSeconds=3600&labelSelector=" +
		selector(o.Attack.Terms, number)
}

// selector has so many terms, and is another one for each number. It sees everything: that costs
// most.
func selector(terms, number int) string {
	var b strings.Builder
	for i := range terms {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "k%d.%d!=v", number, i)
	}
	return b.String()
}
