package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/test/framework/process"
)

// A client is started with these arguments, and others that its row adds:
//
//	SERVER-URL CA-FILE TOKEN-FILE NAMESPACE
//
// It watches the ConfigMaps of the namespace that are labelled seen=true. On standard output it
// writes a line of JSON for each thing that happens:
//
//	{"what":"synced"}                                       once, if the client has that notion
//	{"what":"add"|"update"|"delete","name":N,"value":V}     each call of a handler
//	{"what":"state","objects":{N:V}}                        for each line on standard input
//
// V is the annotation "value" of an object. It ends at the end of standard input.
const (
	selector  = "seen=true"
	namespace = "clients"
)

// line is one of them.
type line struct {
	What, Name, Value string
	Objects           map[string]string
}

// program is a client that runs.
type program struct {
	name string
	*process.Child
	log   *process.Log // standard output
	noise *process.Log // standard error
	ask   *os.File     // standard input
}

// startProgram starts one in a folder.
func startProgram(t *testing.T, name, dir string, args ...string) *program {
	t.Helper()
	in, ask, err := os.Pipe()
	must(t, err)
	defer in.Close()
	p := &program{name: name, log: process.NewLog(t), noise: process.NewLog(t), ask: ask}
	// Child has one file for both outputs.
	cmd := exec.Command("sh", append([]string{"-c", `exec "$@" 2>"$0"`, p.noise.File.Name()}, args...)...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, detector+"=") })
	p.Child, err = process.Start(cmd, in, p.log.File)
	must(t, err)
	t.Cleanup(func() {
		ask.Close()
		p.Stop(5 * time.Second)
		if t.Failed() {
			t.Logf("%s:", name)
			p.log.Show(t)
			p.noise.Show(t)
		}
	})
	return p
}

// lines are those so far.
func (p *program) lines() []line {
	var lines []line
	for text := range bytes.Lines(p.log.Text()) {
		var l line
		if text[len(text)-1] == '\n' && json.Unmarshal(text, &l) == nil { // clients' libraries may print, too
			lines = append(lines, l)
		}
	}
	return lines
}

// synced reports that the client has said so.
func (p *program) synced() bool {
	return slices.ContainsFunc(p.lines(), func(l line) bool { return l.What == "synced" })
}

// state is what the client holds now.
func (p *program) state(ctx context.Context) (map[string]string, error) {
	states := func() (last map[string]string, n int) {
		for _, l := range p.lines() {
			if l.What == "state" {
				last, n = l.Objects, n+1
			}
		}
		return last, n
	}
	_, before := states()
	if _, err := p.ask.WriteString("state\n"); err != nil {
		return nil, err
	}
	for range 100 {
		if state, n := states(); n > before {
			return state, nil
		}
		if p.Ended() {
			return nil, fmt.Errorf("%s ended: %w", p.name, p.Err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil, errors.New("no answer")
}

// holds waits until the client holds a state.
func (p *program) holds(t *testing.T, want func(map[string]string) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	for {
		state, err := p.state(ctx)
		if err == nil {
			err = want(state)
		}
		if err == nil || p.Ended() || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// equals is a state to hold.
func equals(want map[string]string) func(map[string]string) error {
	return func(have map[string]string) error {
		if maps.Equal(have, want) {
			return nil
		}
		var differ []string
		for name := range want {
			if value, ok := have[name]; !ok || value != want[name] {
				differ = append(differ, fmt.Sprintf("%s is %q, held as %q (%t)", name, want[name], value, ok))
			}
		}
		for name := range have {
			if _, ok := want[name]; !ok {
				differ = append(differ, name+" is a ghost")
			}
		}
		slices.Sort(differ)
		return fmt.Errorf("it differs: %s", strings.Join(differ, ", "))
	}
}

// changes are the calls of handlers for each object, in their order.
func (p *program) changes() map[string][]string {
	changes := map[string][]string{}
	for _, l := range p.lines() {
		switch l.What {
		case "add", "update":
			changes[l.Name] = append(changes[l.Name], l.What+" "+l.Value)
		case "delete":
			changes[l.Name] = append(changes[l.Name], l.What)
		}
	}
	return changes
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
