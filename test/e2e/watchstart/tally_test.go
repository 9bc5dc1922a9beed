package watchstart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tally is what came of the starts of a run.
type tally struct {
	refused atomic.Int64 // with 429
	ended   atomic.Int64 // by the API server

	mu           sync.Mutex
	good, passed int
	lost         []string
	times        map[string]*times // by beginning
}

// times are how long it took from the request to the head, and to the first event that is not of
// the script.
type times struct{ head, first []time.Duration }

func newTally() *tally { return &tally{times: map[string]*times{}} }

// add notes a start that was as directly. passed says that upstream answered.
func (y *tally) add(passed bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if passed {
		y.passed++
	}
	y.good++
}

// time notes how long it took to the head and to the first event.
func (y *tally) time(s start, head, first time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	key := s.beginning.name
	if s.ends() {
		key += ", with bookmarks"
	}
	if y.times[key] == nil {
		y.times[key] = &times{}
	}
	y.times[key].head = append(y.times[key].head, head)
	if s.place == state && !s.one && first > 0 {
		y.times[key].first = append(y.times[key].first, first)
	}
}

// lose notes a start that was not.
func (y *tally) lose(text string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lost = append(y.lost, text)
}

// losses is how many starts lost something.
func (y *tally) losses() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.lost)
}

// check fails the test for what was lost, and if nothing was tested. Where answers are prompt, no
// watch may have been refused.
func (y *tally) check(t *testing.T, prompt bool) {
	t.Helper()
	for i, text := range y.lost {
		if i < 5 {
			t.Error(text)
		}
	}
	if len(y.lost) > 0 {
		t.Errorf("%d starts lost something", len(y.lost))
	}
	if y.good <= y.passed {
		t.Errorf("of %d starts upstream itself answered %d: this tests nothing", y.good, y.passed)
	}
	if n := y.refused.Load(); prompt && n > 0 {
		t.Errorf("%d watches were refused, though answers were prompt", n)
	}
}

func (y *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d starts as directly, of which %d passed through; %d lost something; %d were refused, and %d "+
		"ended by the API server, and started again\n", y.good, y.passed, len(y.lost), y.refused.Load(), y.ended.Load())
	for _, key := range slices.Sorted(maps.Keys(y.times)) {
		fmt.Fprintf(&b, "%-50s head %9s, first event %9s (medians of %d)\n", key, median(y.times[key].head),
			median(y.times[key].first), len(y.times[key].head))
	}
	return b.String()
}

// median is empty without values.
func median(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond).String()
}
