package fuzzdiff

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"spillway/test/framework/exchange"
)

// fault alters one thing between a client and the proxy, as a proxy with a bug would.
type fault struct {
	name string
	// ask changes the request on its way, answer the answer to it; either may be nil.
	ask    func(*http.Request)
	answer func(*http.Request, *http.Response)
	// needs is what the shrunk request cannot do without, and most bounds how many parameters and
	// header lines it has.
	needs func(ask) bool
	most  int
}

func (f fault) through(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		asked := r.Clone(r.Context())
		if f.ask != nil {
			f.ask(asked)
		}
		answer, err := next.RoundTrip(asked)
		if err == nil && f.answer != nil {
			f.answer(r, answer)
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// inBody replaces the first old by new of the same length in an answer's body.
func inBody(old, new string) func(*http.Request, *http.Response) {
	return func(_ *http.Request, a *http.Response) {
		body, err := io.ReadAll(a.Body)
		a.Body.Close()
		a.Body = io.NopCloser(io.MultiReader(bytes.NewReader(bytes.Replace(body, []byte(old), []byte(new), 1)), failing{err}))
	}
}

// failing goes on where a body could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

func has(name string) func(ask) bool {
	return func(a ask) bool {
		return slices.ContainsFunc(a.params, func(p string) bool { return strings.HasPrefix(p, name) })
	}
}

func anything(ask) bool { return true }

var faults = []fault{
	{
		name: "the last value of a parameter counts", needs: func(a ask) bool { return len(a.params) >= 2 }, most: 4,
		ask: func(r *http.Request) {
			if strings.Contains(r.URL.RawQuery, "watch") {
				return // which would go on for as long as the last value says
			}
			pairs := strings.Split(r.URL.RawQuery, "&")
			slices.Reverse(pairs)
			r.URL.RawQuery = strings.Join(pairs, "&")
		},
	},
	{
		name: "a semicolon separates parameters", needs: func(a ask) bool { return strings.Contains(a.target(), ";") },
		most: 3,
		ask:  func(r *http.Request) { r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, ";", "&") },
	},
	{
		name: "Exact is taken for NotOlderThan", needs: has("resourceVersionMatch=Exact"), most: 3,
		ask: func(r *http.Request) { r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, "=Exact", "=NotOlderThan") },
	},
	{
		name: "paths are tidied up", needs: func(a ask) bool { return strings.Contains(a.path, "//") }, most: 1,
		ask: func(r *http.Request) {
			r.URL.Path, r.URL.RawPath = strings.ReplaceAll(r.URL.Path, "//", "/"), strings.ReplaceAll(r.URL.RawPath, "//", "/")
		},
	},
	{
		name: "DELETED is called MODIFIED", needs: func(a ask) bool { return strings.Contains(a.target(), "watch") }, most: 3,
		answer: inBody(`{"type":"DELETED"`, `{"type":"CHANGED"`),
	},
	{
		name: "a count is wrong", needs: has("limit="), most: 2,
		answer: inBody(`"remainingItemCount":1`, `"remainingItemCount":2`),
	},
	{
		name: "another word in a 404", needs: anything, most: 1,
		answer: inBody(`not found`, `NOT found`),
	},
	{
		name: "one header too many, for some", most: 1,
		needs: func(a ask) bool { return len(a.header) == 1 && a.header[0].name == "Accept-Encoding" },
		answer: func(r *http.Request, a *http.Response) {
			if strings.Contains(r.Header.Get("Accept-Encoding"), "br") {
				a.Header.Set("Server", "planted")
			}
		},
	},
	{
		name: "names are matched without regard to case", needs: func(a ask) bool {
			return strings.ContainsAny(a.target(), "LR")
		}, most: 2,
		ask: func(r *http.Request) {
			pairs := strings.Split(r.URL.RawQuery, "&")
			for i, p := range pairs {
				for _, name := range []string{"limit=", "resourceVersion="} {
					if len(p) >= len(name) && strings.EqualFold(p[:len(name)], name) {
						pairs[i] = name + p[len(name):]
					}
				}
			}
			r.URL.RawQuery = strings.Join(pairs, "&")
		},
	},
	{
		name: "selectors lose what stands behind a blank", needs: has("labelSelector="), most: 2,
		ask: func(r *http.Request) {
			pairs := strings.Split(r.URL.RawQuery, "&")
			for i, p := range pairs {
				name, raw, _ := strings.Cut(p, "=")
				if value, err := url.QueryUnescape(raw); err == nil && name == "labelSelector" {
					value, _, _ = strings.Cut(value, " ")
					pairs[i] = name + "=" + url.QueryEscape(value)
				}
			}
			r.URL.RawQuery = strings.Join(pairs, "&")
		},
	},
}

// testPlanted expects every fault to be found, and shrunk to little more than what shows it.
func (w *world) testPlanted(t *testing.T, state *State) {
	for i, planted := range faults {
		t.Run(planted.name, func(t *testing.T) {
			t.Parallel()
			honest := w.ways[0].Proxied
			bent := *honest
			client := *honest.Client
			client.Transport = planted.through(client.Transport)
			bent.Client, bent.Name = &client, "planted"
			f := &Fuzzer{Ways: []Route{{Direct: w.direct, Proxied: &bent}}, Workers: 8, Seed: *seed, Tally: exchange.NewTally()}
			finding := f.firstFinding(t.Context(), state, uint64(i)<<32)
			if finding == nil {
				t.Fatalf("not found: %s", f)
			}
			a := finding.Shrunk
			t.Logf("found after %d requests\n%s", f.Asked.Load(), finding)
			if !planted.needs(a) || len(a.params)+len(a.header) > planted.most {
				t.Errorf("shrunk to %s", a)
			}
		})
	}
}

// firstFinding goes on until something is found, but not forever.
func (f *Fuzzer) firstFinding(ctx context.Context, state *State, from uint64) *Finding {
	const step, most = 100, 6000
	for at := from; at < from+most; at += step {
		if found := f.Round(ctx, state, at, at+step); len(found) > 0 {
			return &found[0]
		}
	}
	return nil
}
