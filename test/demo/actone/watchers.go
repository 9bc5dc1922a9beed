package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"spillway/internal/fakeapiserver/rawclient"
)

// added are the events of new pods.
func added(names ...string) (events []string) {
	for _, name := range names {
		events = append(events, "ADDED "+namespace+"/"+name)
	}
	return events
}

// modified are the events of one round of changes.
func modified() (events []string) {
	for n := range changes {
		events = append(events, "MODIFIED "+namespace+"/"+firstPods[n%len(firstPods)])
	}
	return events
}

// receive waits until every watcher has received exactly these events next, and returns when the
// last receipt was. It fails at a watch that has ended, and at any other event, such as one that is
// lost, repeated or an ERROR.
func (s *show) receive(ctx context.Context, want ...string) (last time.Time, err error) {
	received := make([]time.Time, len(s.watchers))
	group, ctx := errgroup.WithContext(ctx)
	for i, w := range s.watchers {
		group.Go(func() (err error) {
			received[i], err = receiveNext(ctx, w, want)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return last, err
	}
	return slices.MaxFunc(received, time.Time.Compare), nil
}

// receiveNext is receive for one watcher.
func receiveNext(ctx context.Context, w *rawclient.Watcher, want []string) (time.Time, error) {
	for _, one := range want {
		event, err := w.Next(ctx)
		if err != nil {
			return time.Time{}, fmt.Errorf("a client waits for %s: %w", one, err)
		}
		if got := event.Type + " " + event.Key; got != one {
			return time.Time{}, fmt.Errorf("a client received %s instead of %s", event, one)
		}
	}
	return time.Now(), nil
}

func (s *show) slowReceives(ctx context.Context, want ...string) error {
	if _, err := receiveNext(ctx, s.slow, want); err != nil {
		return fmt.Errorf("the slow client: %w", err)
	}
	return nil
}

// slowHas counts the events that the slow client has received since it was last asked.
func (s *show) slowHas() (n int) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		if _, err := s.slow.Next(over); err != nil {
			return n
		}
		n++
	}
}
