package fuzzdiff

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"spillway/test/framework/exchange"
)

// shrinkSteps bounds how often a finding is made simpler, and atOnce how many simpler requests are
// under way.
const (
	shrinkSteps = 60
	atOnce      = 16
)

// shrink leaves out of a finding what it does not need, and sends what remains a few times more.
func (f *Fuzzer) shrink(ctx context.Context, found *Finding) {
	ctx, cancel := context.WithTimeout(ctx, shrinkTime)
	defer cancel()
	kind := kindOf(found.Problems)
	differs := func(compare func(context.Context, Route, ask) *exchange.Comparison, a ask) []string {
		c := compare(ctx, found.Way, a)
		if ctx.Err() != nil || kindOf(c.Problems) != kind { // another difference would be another finding
			return nil
		}
		return c.Problems
	}
	for range shrinkSteps {
		simpler, ok := firstOf(simpler(found.Shrunk), func(a ask) bool { return differs(f.compareOnce, a) != nil })
		if !ok {
			break
		}
		found.Shrunk = simpler
	}
	found.Tries, found.Seen = 0, 0
	for range 3 {
		found.Tries++
		if problems := differs(f.compare, found.Shrunk); problems != nil {
			found.Seen++
			found.Problems = problems
		}
	}
}

// firstOf is the first of some requests that holds. A few are tried at a time, because watches take
// their time.
func firstOf(asks []ask, holds func(ask) bool) (ask, bool) {
	for some := range slices.Chunk(asks, atOnce) {
		held := make([]bool, len(some))
		var group sync.WaitGroup
		for i, a := range some {
			group.Go(func() { held[i] = holds(a) })
		}
		group.Wait()
		if i := slices.Index(held, true); i >= 0 {
			return some[i], true
		}
	}
	return ask{}, false
}

var digits = regexp.MustCompile(`\d+`)

// kindOf is what a difference is about: the first problem, without its details.
func kindOf(problems []string) string {
	if len(problems) == 0 {
		return ""
	}
	about, _, _ := strings.Cut(problems[0], ":")
	return digits.ReplaceAllString(about, "")
}

// simpler are the requests one step below a, the boldest first. Each has less in it than a:
// following them ends.
func simpler(a ask) []ask {
	var steps []ask
	step := func(change func(*ask)) {
		b := a.clone()
		change(&b)
		steps = append(steps, b)
	}
	if half := len(a.params) / 2; half > 1 {
		step(func(b *ask) { b.params = b.params[half:] })
		step(func(b *ask) { b.params = b.params[:half] })
	}
	for i := range a.params {
		step(func(b *ask) { b.params = slices.Delete(b.params, i, i+1) })
	}
	for i := range a.header {
		step(func(b *ask) { b.header = slices.Delete(b.header, i, i+1) })
	}
	if a.body != "" {
		step(func(b *ask) { b.body = "" })
	}
	if a.method != "GET" && a.body == "" {
		step(func(b *ask) { b.method = "GET" })
	}
	for _, path := range shorterPaths(a.path) {
		step(func(b *ask) { b.path = path })
	}
	for i, param := range a.params {
		for _, shorter := range shorterParams(param) {
			step(func(b *ask) { b.params[i] = shorter })
		}
	}
	for i, f := range a.header {
		for _, value := range shorterLists(f.value) {
			step(func(b *ask) { b.header[i].value = value })
		}
	}
	return steps
}

// shorterPaths leaves out the namespace, and segments at the end.
func shorterPaths(path string) []string {
	var shorter []string
	segments := strings.Split(path, "/")
	if i := slices.Index(segments, "namespaces"); i >= 0 && i+2 < len(segments) {
		shorter = append(shorter, strings.Join(slices.Delete(slices.Clone(segments), i, i+2), "/"))
	}
	if len(segments) > 2 {
		shorter = append(shorter, strings.Join(segments[:len(segments)-1], "/"))
	}
	if plain, err := url.PathUnescape(path); err == nil && len(plain) < len(path) &&
		!strings.ContainsAny(plain, "?#% \x00") {
		shorter = append(shorter, plain)
	}
	return shorter
}

// shorterParams spells a value plainly, or leaves out some of it.
func shorterParams(param string) []string {
	name, raw, ok := strings.Cut(param, "=")
	value, err := url.QueryUnescape(raw)
	if !ok || err != nil || value == "" {
		return nil
	}
	var shorter []string
	if plain := name + "=" + url.QueryEscape(value); len(plain) < len(param) {
		shorter = append(shorter, plain)
	}
	for _, v := range shorterLists(value) {
		shorter = append(shorter, name+"="+url.QueryEscape(v))
	}
	if len(value) > 1 && name != "resourceVersion" && name != "continue" { // a part of those is another thing
		shorter = append(shorter, name+"="+url.QueryEscape(value[len(value)/2:]),
			name+"="+url.QueryEscape(value[:len(value)/2]))
	}
	return append(shorter, name+"=")
}

// shorterLists leaves out elements between commas, and parameters behind semicolons.
func shorterLists(value string) []string {
	var shorter []string
	for _, separator := range []string{",", ";"} {
		parts := strings.Split(value, separator)
		for i := range parts {
			if len(parts) > 1 {
				shorter = append(shorter, strings.Join(slices.Delete(slices.Clone(parts), i, i+1), separator))
			}
		}
	}
	return shorter
}
