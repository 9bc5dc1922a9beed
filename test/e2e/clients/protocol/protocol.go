// Package protocol is the protocol of the test's clients, as those in Go speak it.
package protocol

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"sync"
)

// Selector is the label selector of what clients watch.
const Selector = "seen=true"

// Arguments are those of the program.
type Arguments struct{ Server, CAFile, TokenFile, Namespace string }

// Parse takes them from the command line.
func Parse() Arguments {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: client SERVER CA-FILE TOKEN-FILE NAMESPACE")
		os.Exit(2)
	}
	return Arguments{os.Args[1], os.Args[2], os.Args[3], os.Args[4]}
}

type line struct {
	What    string            `json:"what"`
	Name    string            `json:"name,omitempty"`
	Value   string            `json:"value,omitempty"`
	Objects map[string]string `json:"objects,omitempty"`
}

var output struct {
	sync.Mutex
	state map[string]string
}

func say(l line) {
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		os.Exit(1)
	}
}

// Synced says that the first state is complete.
func Synced() {
	output.Lock()
	defer output.Unlock()
	say(line{What: "synced"})
}

// Set says that an object was added or updated, and keeps its value for States.
func Set(what, name, value string) {
	output.Lock()
	defer output.Unlock()
	if output.state == nil {
		output.state = map[string]string{}
	}
	output.state[name] = value
	say(line{What: what, Name: name, Value: value})
}

// Delete says that an object was deleted.
func Delete(name string) {
	output.Lock()
	defer output.Unlock()
	delete(output.state, name)
	say(line{What: "delete", Name: name})
}

// Held is the state that follows from Set and Delete.
func Held() map[string]string {
	output.Lock()
	defer output.Unlock()
	return maps.Clone(output.state)
}

// Answer answers each line of standard input with the state, and ends the program at its end.
func Answer(state func() map[string]string) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		objects := state()
		output.Lock()
		say(line{What: "state", Objects: objects})
		output.Unlock()
	}
	os.Exit(0)
}

// Must ends the program on an error.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
