package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"spillway/bench/rig"
	"spillway/bench/rig/plot"
)

// crowded is where the objects are that are counted, in a namespace of their own.
const (
	crowd      = "crowd"
	crowded    = "/api/v1/namespaces/" + crowd + "/configmaps"
	objectSize = "1 kB"
)

// byObjects measures memory, and then what a LIST costs, while there are more and more
// objects.
func (s *show) byObjects(ctx context.Context) error {
	objects := "ConfigMaps of " + objectSize
	lists := s.newSweep("objects", plot.Plot{
		Title: "Cost of a LIST at resourceVersion 0, JSON", X: objects, Y: "ms of server CPU per LIST", Log: true,
	}, listCost)
	lists.row, lists.total, lists.unit = "a LIST of %d "+objects, "CPU for a LIST of n "+objects, rig.Millis
	memory, err := s.memory(ctx, objects)
	if err != nil {
		return err
	}
	if err := s.Create(ctx, "/api/v1/namespaces", 1,
		func(int) []byte { return []byte(`{"metadata":{"name":"` + crowd + `"}}`) }); err != nil {
		return err
	}
	const enough = 3000 // enough to separate their share from what a process uses anyway
	made := 0
	for _, n := range []int{1000, 3000, 10000, 30000, 100000} {
		if n > *most {
			break
		}
		if err := s.grow(ctx, made, n); err != nil {
			return err
		}
		made = n
		if n >= enough {
			if err := memory.measureAt(ctx, n); err != nil {
				return err
			}
		}
		if err := lists.measureAt(ctx, n); err != nil {
			return err
		}
	}
	if err := lists.finish(); err != nil {
		return err
	}
	return memory.finish()
}

// memory is the curve of how much larger the servers are than they are now.
func (s *show) memory(ctx context.Context, objects string) (*curvePair, error) {
	apiserver, spillway := s.APIServer, s.Spillway
	gauges := map[int]rig.Gauge{apiserver.Pid: s.APIServerGauge(), spillway.Pid: s.Proxy.Gauge()}
	empty := map[int]int64{}
	for pid, gauge := range gauges {
		now, err := gauge.Read(ctx)
		if err != nil {
			return nil, err
		}
		empty[pid] = now.RSS
	}
	curve := s.newSweep("memory", plot.Plot{
		Title: "Memory for objects", X: objects, Y: "growth of RSS, MB", Log: true,
	}, func(ctx context.Context, server rig.Server, n int) (sample, error) {
		now, err := gauges[server.Pid].Read(ctx)
		return sample{x: float64(n), y: float64(now.RSS-empty[server.Pid]) / 1e6}, err
	})
	curve.row, curve.total, curve.unit, curve.rounds = "growth of RSS by %d "+objects, "RSS for n "+objects, rig.Megabytes,
		1
	return curve.between([]rig.Server{apiserver, spillway}), nil
}

// grow creates objects from the first on, up to the last, which it leaves out, and returns when
// both servers have them.
func (s *show) grow(ctx context.Context, first, last int) error {
	err := s.Create(ctx, crowded, last-first, func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"crowd-%06d"},"data":{"padding":"%0640d"}}`, first+i, first+i)
	})
	if err != nil {
		return err
	}
	for _, server := range []rig.Server{s.APIServer, s.Spillway} {
		client := clientOf(server)
		defer client.CloseIdleConnections()
		var problem error
		arrived := rig.Eventually(ctx, time.Minute, time.Second, func() bool {
			problem = list(ctx, client, server, last)
			return problem == nil
		})
		if !arrived {
			return fmt.Errorf("%s: %w", server.Name, problem)
		}
	}
	return nil
}

// listCost measures ms of CPU for a LIST of all, of which there are n.
func listCost(ctx context.Context, server rig.Server, n int) (sample, error) {
	lists := min(max(30_000/n, 3), 30)
	client := clientOf(server)
	defer client.CloseIdleConnections()
	before, err := server.CPU()
	if err != nil {
		return sample{}, err
	}
	for range lists {
		if err := list(ctx, client, server, n); err != nil {
			return sample{}, err
		}
	}
	after, err := server.CPU()
	return sample{x: float64(n), y: (after - before).Seconds() * 1e3 / float64(lists)}, err
}

// list lists all, of which there are n.
func list(ctx context.Context, client *http.Client, server rig.Server, n int) error {
	body, err := rig.GetAll(ctx, client, server.URL+crowded+"?resourceVersion=0")
	if err != nil {
		return err
	}
	if got := bytes.Count(body, []byte(`"name":"crowd-`)); got != n {
		return fmt.Errorf("%s lists %d objects of %d", server.Name, got, n)
	}
	return nil
}

func clientOf(server rig.Server) *http.Client {
	if server.Token == "" {
		return rig.NewHTTPClient()
	}
	return rig.NewTLSClient(server.Token)
}
