package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"spillway/bench/rig"
)

const (
	floorName    = "bare loop of sends"
	floorCommand = "serve-floor" // the argument that makes this program the server below
)

// floor is a server that does as little as can be done: it sends the frame of an event, or the
// frames of a burst as one, to each of its clients, in one loop of system calls that do not block;
// over TLS crypto/tls seals it for each of them before, and over HTTP/2 it reads the WINDOW_UPDATE
// frames that they return. It is this program, started once more, so that its CPU is measured apart
// from ours.
type floor struct {
	plain, secure, http2 rig.Server // one process
	cmd                  *exec.Cmd
	orders               io.WriteCloser
}

// startFloor starts it with the frame of an event that Spillway sent.
func (s *show) startFloor(ctx context.Context) (*floor, error) {
	watch, err := rig.OpenWatch(ctx, rig.NewHTTPClient(), s.Plain().URL+rig.ConfigMaps,
		map[string][]string{"resourceVersion": {"0"}})
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	var line []byte
	for !bytes.Contains(line, []byte(`"padding":"`)) || len(line) < *size {
		event, err := watch.Next()
		if err != nil {
			return nil, err
		}
		line = event.Line
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &floor{cmd: exec.Command(self, floorCommand)}
	f.cmd.Stderr = os.Stderr
	if f.orders, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := rig.Start(f.cmd); err != nil {
		return nil, err
	}
	if _, err := f.orders.Write(line); err != nil {
		f.stop()
		return nil, err
	}
	var plain, secure, overHTTP2 string
	if _, err := fmt.Fscanln(out, &plain, &secure, &overHTTP2); err != nil {
		f.stop()
		return nil, fmt.Errorf("the bare loop does not say where it listens: %w", err)
	}
	f.plain = rig.Server{Name: floorName, URL: "http://" + plain, Pid: f.cmd.Process.Pid}
	f.secure = rig.Server{Name: floorName + ", TLS", URL: "https://" + secure, Pid: f.cmd.Process.Pid}
	f.http2 = rig.Server{Name: floorName + ", HTTP/2", URL: "https://" + overHTTP2, Pid: f.cmd.Process.Pid}
	return f, nil
}

func (f *floor) stop() {
	_ = f.cmd.Process.Kill() // fails only when it is gone already
	_ = f.cmd.Wait()         // says that it was killed
}

// run orders events at a rate, as a rig.Writer writes them; those of a burst at once.
func (f *floor) run(ctx context.Context, perSecond float64, burst int, while time.Duration) (int, error) {
	n := 0
	for began := time.Now(); ctx.Err() == nil; n += burst {
		due := time.Duration(float64(n) / perSecond * float64(time.Second))
		if due >= while {
			break
		}
		time.Sleep(due - time.Since(began))
		now := fmt.Appendln(nil, time.Now().UnixNano())
		if _, err := f.orders.Write(bytes.Repeat(now, burst)); err != nil {
			return n, err
		}
	}
	return n, ctx.Err()
}
