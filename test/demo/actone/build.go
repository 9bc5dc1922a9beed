package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"spillway/test/demo/stage"
)

const (
	statusEvery = time.Second // on a terminal
	lineEvery   = time.Minute // elsewhere
	stopGrace   = time.Second // for a build to end what it has started
)

// build is the build of what act two needs. It runs beside act one.
type build struct {
	child   *stage.Child
	log     string
	started time.Time
	shown   chan struct{} // closed when its progress is no longer shown
	over    context.CancelFunc
}

// startBuild starts the build. Its output goes to a file, and its progress to one line.
func (s *show) startBuild() error {
	log, err := os.Create(s.log)
	if err != nil {
		return fmt.Errorf("cannot make the build's log: %w", err)
	}
	defer log.Close() // the child has its own
	scratch := filepath.Join(s.dir, "build")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("cannot make a folder: %w", err)
	}
	args := strings.Fields(s.buildCommand)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "GOTMPDIR="+scratch) // go leaves its folders behind when it is stopped
	child, err := stage.StartGroup("the build", cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.build = &build{child: child, log: s.log, started: time.Now(), shown: make(chan struct{}), over: cancel}
	go s.build.show(ctx, s.console)
	return nil
}

// show shows the progress until the build has ended, or ctx.
func (b *build) show(ctx context.Context, console *stage.Console) {
	defer close(b.shown)
	defer console.Status("")
	every := lineEvery
	if console.HasStatus() {
		every = statusEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-b.child.Done:
			return
		case <-ctx.Done():
			return
		}
		text := "act two is being built, " + b.age() + ": " + lastLine(stage.TailOf(b.log))
		if console.HasStatus() {
			console.Status(text)
		} else {
			console.Line("%s", text)
		}
	}
}

func (b *build) age() string { return time.Since(b.started).Round(time.Second).String() }

// isOver reports whether the build has ended.
func (b *build) isOver() bool {
	select {
	case <-b.child.Done:
		return true
	default:
		return false
	}
}

// failure is why the build failed, nil if it did not. It has ended.
func (b *build) failure() error {
	if b.child.Err == nil {
		return nil
	}
	return fmt.Errorf("what act two needs cannot be built (%w); the log is %s, and this is its end:\n%s",
		b.child.Err, b.log, stage.TailOf(b.log))
}

// stop ends the build, with all that it has started.
func (b *build) stop() {
	b.over()
	<-b.shown
	if !b.isOver() {
		b.child.StopGroup(stopGrace)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// stayOrGo ends act one: at once, when act two is built, or at Ctrl-C.
func (s *show) stayOrGo(ctx context.Context) error {
	var over <-chan struct{} // nil, and so never, with nothing to wait for
	switch {
	case s.build != nil:
		s.console.Line("\nAct two shows Spillway in front of the real etcd and kube-apiserver: kubectl writes, a watch")
		s.console.Line("prints, and 200 watches through Spillway are 1 at kube-apiserver.")
		if s.build.isOver() {
			s.console.Line("It begins now.")
			return s.build.failure()
		}
		s.console.Line("It begins when it is built: about 7 minutes after the beginning on 2 processors, once per machine.")
		s.console.Line("The build's output is in %s. Until then, act one stays: paste into another terminal", s.log)
		over = s.build.child.Done
	case s.stay:
		s.console.Line("\nAct one stays until Ctrl-C. Paste into another terminal")
	default:
		s.console.Line("\nTo keep act one running and type these lines yourself: %s -stay", os.Args[0])
		return nil
	}
	s.suggest()
	select {
	case <-ctx.Done():
		return nil
	case <-s.proxy.Done:
		return s.proxy.Ended()
	case <-over:
		return s.build.failure()
	}
}

// suggest prints what to try while act one stays.
func (s *show) suggest() {
	server := s.proxy.Server
	for _, command := range []string{
		"curl -sN '" + server + watchPath + "' &",
		fmt.Sprintf(createCommand, server, podsPath, `{"metadata":{"name":"mine"}}`),
		"curl -X DELETE " + server + podsPath + "/mine",
		"curl -sN --limit-rate 1 '" + server + watchPath + "' # a slow client",
		"curl -s " + s.proxy.Metrics + "/metrics | grep ^spillway_",
	} {
		s.console.Line("  %s", command)
	}
}
