package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// agent is how the User-Agent of a request begins that is Spillway's own.
const agent = "spillway/"

// IsOwn reports that a request is Spillway's own: neither passed through nor shared by clients.
func IsOwn(r *http.Request) bool { return strings.HasPrefix(r.Header.Get("User-Agent"), agent) }

// IsQuestion reports that a request is one by which Spillway learns how far the API server is, or
// what its history was: a probe, a backfill or a check. It is not one that mirrors a resource, nor
// a review.
func IsQuestion(r *http.Request) bool {
	return IsOwn(r) && strings.Contains(r.Header.Get("User-Agent"), " ")
}

// Answers says how late the API server answers Spillway's questions. The zero value is at once. As
// a flag it is a time, random or never.
type Answers struct {
	text  string
	after time.Duration
}

// The values of the flag that are no time.
const (
	// Random is a time of its own for each question, so that answers are out of order between
	// connections, and no answer to one question in sixteen.
	Random = "random"
	// Never is no answer to any question.
	Never = "never"
)

// randomTimes are those of Random.
var randomTimes = []time.Duration{
	0, 5 * time.Millisecond, 100 * time.Millisecond, 700 * time.Millisecond, 3 * time.Second,
}

// Set implements flag.Value.
func (a *Answers) Set(text string) error {
	switch text {
	case Random, Never:
		*a = Answers{text: text}
		return nil
	case "":
		*a = Answers{}
		return nil
	}
	after, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is neither a time, such as 700ms, nor %s nor %s", text, Random, Never)
	}
	if after < 0 {
		return errors.New("answers cannot come before their questions")
	}
	*a = Answers{text: text, after: after}
	return nil
}

// String implements flag.Value.
func (a *Answers) String() string { return a.text }

// Prompt reports that answers come at once.
func (a *Answers) Prompt() bool { return a.after == 0 && a.text != Random && a.text != Never }

// Lateness is that of one request. Half of the questions reach the API server late, so that their
// answers are of a later moment; the answers to the others come late, so that they are old.
func (a *Answers) Lateness(r *http.Request) Lateness {
	if a.Prompt() || !IsQuestion(r) {
		return Lateness{}
	}
	late := a.after
	switch a.text {
	case Never:
		return Lateness{Never: true}
	case Random:
		if rand.IntN(16) == 0 {
			return Lateness{Never: true}
		}
		late = randomTimes[rand.IntN(len(randomTimes))]
	}
	if rand.IntN(2) == 0 {
		return Lateness{Before: late}
	}
	return Lateness{After: late}
}

// Before returns the configuration of Spillway's upstream: config, or a relay to it where answers
// are late. The relay fails the test if in the end no question was late.
func (a *Answers) Before(t *testing.T, config *rest.Config) *rest.Config {
	t.Helper()
	if a.Prompt() {
		return config
	}
	r := New(t, config, a.Lateness)
	t.Cleanup(func() {
		if r.Late() == 0 && !t.Failed() && !t.Skipped() {
			t.Error("no question of Spillway came: nothing was late")
		}
	})
	return r.Config
}
