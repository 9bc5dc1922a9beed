package conformance

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"spillway/test/framework/exchange"
)

// matrix is every combination of the options that decide which state a request reads and for how
// long it waits (W-31, W-32, W-63, W-100, W-101). What the answer is, is up to the API server; that
// it is the same, is tested.
//
// The options in crossed are tried in every combination, those in scattered with values that chance
// picks: they change little, and chance brings each value together with every other.
type matrix struct {
	name      string
	set       string // what it is counted with
	verb      string
	rules     string
	targets   []string // paths, the first of which gets the whole matrix and the others a part; may end in a query
	options   string   // of every request
	paged     bool     // tokens of the target's own pages are among what is tried
	crossed   []dimension
	scattered []dimension
	sample    int // requests per target, unless all are sent
	part      int // requests per target but the first, when all are sent
}

// dimension is a query parameter and the values it is tried with, the first of which is the
// plainest. Those named absent leave it out.
type dimension struct {
	name   string // or one of the names below
	values []string
}

const (
	absent = "(absent)"
	// accepted is the dimension of the Accept header.
	accepted = "Accept"
	// together is a dimension of several parameters that go together: its values are pieces of a
	// query.
	together = ""
)

// everySet is every value together with every other, whether that makes sense or not.
const everySet = "every combination"

var (
	anyVersion = dimension{"resourceVersion", []string{
		absent, "", "0", "00", "1", "${old}", "${first}", "${mid}", "${last}", "0${mid}", "${future}", "abc", "-1", "1.5",
		"+1",
		"9223372036854775808", "18446744073709551616",
	}}
	anyMatch = dimension{"resourceVersionMatch", []string{absent, "", "Exact", "NotOlderThan", "Foo"}}
	anyLimit = dimension{"limit", []string{absent, "", "0", "1", "100", "-1", "abc"}}
	anyToken = dimension{"continue", []string{absent, "", "${page-direct}", "${page-plain}", "${token-old}",
		"${token-any}", "${token-future}", "nonsense", "${token-zero}"}}
	anyInitial = dimension{"sendInitialEvents", []string{absent, "", "true", "false"}}
	anyMarks   = dimension{"allowWatchBookmarks", []string{absent, "true", "false", ""}}
	anyTimeout = dimension{"timeout", []string{absent, absent, absent, "7s", "0s", "abc"}}
	// How long a LIST may take is not up to timeoutSeconds; a watch ends by it.
	listSeconds  = dimension{"timeoutSeconds", []string{absent, absent, "0", "1", "-1", "abc"}}
	watchSeconds = dimension{"timeoutSeconds", []string{"1", "1", "1", "1", "2", "2", "3", "7", "abc", ""}}
	everSeconds  = dimension{"timeoutSeconds", []string{"1"}}
)

// everyCombination are the matrices of everySet.
func everyCombination() []matrix {
	const old = "/api/v1/watch"
	return []matrix{
		{
			name: "list", set: everySet, verb: "LIST", rules: "W-27 W-31 W-63 W-64 W-67 W-68 W-80 W-81 W-82 W-83", sample: 130,
			part: 1500,
			targets: []string{
				c1, allMaps, c1 + "?fieldSelector=metadata.name%3Db", c1 + "?labelSelector=app%3Dx", "/api/v1/nodes", someWidgets,
				allWidgets,
			},
			paged:     true,
			crossed:   []dimension{anyVersion, anyMatch, anyLimit, anyToken, anyInitial},
			scattered: []dimension{anyMarks, listSeconds, anyTimeout},
		},
		{
			name: "watch", set: everySet, verb: "WATCH", rules: "W-27 W-32 W-100 W-101 W-106 W-107 W-111", sample: 80, part: 600,
			targets: []string{
				c1, allMaps, c1 + "?fieldSelector=metadata.name%3Db", c1 + "?labelSelector=app%3Dx", "/api/v1/nodes", someWidgets,
				allWidgets,
			},
			options: "watch=1",
			paged:   true,
			crossed: []dimension{anyVersion, anyMatch, anyInitial, anyMarks,
				{"continue", []string{absent, "${page-direct}", "nonsense"}}, {"limit", []string{absent, "1", "abc"}}},
			scattered: []dimension{watchSeconds, anyTimeout},
		},
		{
			name: "deprecated watch", set: everySet, verb: "WATCH", rules: "W-27 W-33 W-100 W-107", sample: 50, part: 300,
			targets: []string{
				old + "/namespaces/c1/configmaps", old + "/configmaps", old + "/namespaces/c1/configmaps/b", old +
					"/namespaces/c1/configmaps/zz", old + "/nodes/n1",
				"/apis/" + widgetGroup + "/v1/watch/namespaces/c1/widgets",
			},
			crossed: []dimension{anyVersion, anyMatch, anyInitial, anyMarks, {"watch", []string{absent, "0"}}},
			scattered: []dimension{everSeconds, {"limit", []string{absent, absent, "1", "abc"}},
				{"continue", []string{absent, absent, "nonsense"}}, anyTimeout},
		},
		{
			name: "get", set: everySet, verb: "GET", rules: "W-27 W-34 W-68 W-95 W-96", sample: 50, part: 400,
			targets: []string{c1 + "/b", c1 + "/zz", c1 + "/t", "/api/v1/nodes/n1", someWidgets + "/w1", someWidgets + "/zz",
				"/api/v1/namespaces/none/configmaps/a"},
			crossed: []dimension{anyVersion, anyTimeout, {"resourceVersionMatch", []string{absent, "Exact", "Foo"}},
				{"export", []string{absent, "true"}}},
			scattered: []dimension{anyMarks, anyInitial, anyLimit, {"watch", []string{absent, "1"}}},
		},
	}
}

// seed makes a sample the same in every run.
const seed = 3

// trials are the requests of a matrix for one of its targets.
func (m *matrix) trials(target string, everything bool) []matrixCase {
	chance := rand.New(rand.NewPCG(seed, uint64(len(target))))
	size := 1
	for _, d := range m.crossed {
		size *= len(d.values)
	}
	var trials []matrixCase
	switch {
	case everything && target == m.targets[0]:
		for i := range size {
			trials = append(trials, m.trial(i, chance))
		}
	case everything:
		for _, i := range chance.Perm(size)[:min(size, m.part)] {
			trials = append(trials, m.trial(i, chance))
		}
	default:
		trials = m.sampled(chance)
	}
	return trials
}

// sampled are few requests in which each value of each option occurs about as often as any other.
// Left to chance, nearly all would have something wrong with them; so every other one leaves out
// all but the resourceVersion and one more of its options.
func (m *matrix) sampled(chance *rand.Rand) []matrixCase {
	var trials []matrixCase
	decks := make([][]int, len(m.crossed))
	for n := range m.sample {
		i, kept := 0, 1+chance.IntN(len(m.crossed)-1)
		for d, dim := range m.crossed {
			if len(decks[d]) == 0 {
				decks[d] = chance.Perm(len(dim.values))
			}
			value := decks[d][0]
			decks[d] = decks[d][1:]
			if n%2 == 0 && d != 0 && d != kept {
				value = 0
			}
			i = i*len(dim.values) + value
		}
		trials = append(trials, m.trial(i, chance))
	}
	return trials
}

// matrixCase is what a request of a matrix says beside its target.
type matrixCase struct {
	query  string
	accept string // empty for none
}

// matrixCase is the i-th combination of what is crossed, with what chance adds.
func (m *matrix) trial(i int, chance *rand.Rand) matrixCase {
	values := make([]string, len(m.crossed))
	for d := len(m.crossed) - 1; d >= 0; d-- {
		n := len(m.crossed[d].values)
		values[d] = m.crossed[d].values[i%n]
		i /= n
	}
	var made matrixCase
	var parts []string
	if m.options != "" {
		parts = append(parts, m.options)
	}
	add := func(name, value string) {
		switch {
		case value == absent:
		case name == accepted:
			made.accept = value
		case name == together:
			parts = append(parts, value)
		default:
			parts = append(parts, name+"="+value)
		}
	}
	for d, dim := range m.crossed {
		add(dim.name, values[d])
	}
	for _, dim := range m.scattered {
		add(dim.name, dim.values[chance.IntN(len(dim.values))])
	}
	made.query = strings.Join(parts, "&")
	return made
}

// testMatrix sends all of them.
func (s *suite) testMatrix(t *testing.T) {
	counts := matrixCounts{}
	t.Run("of", func(t *testing.T) {
		for _, m := range append(everyCombination(), validCombinations()...) {
			n := counts.of(m.set, m.verb)
			for _, target := range m.targets {
				t.Run(m.set+" "+m.name+" "+target, func(t *testing.T) {
					t.Parallel()
					s.runMatrix(t, &m, target, n)
				})
			}
		}
	})
	s.combinations = counts.String()
	t.Log("\n" + s.combinations)
	for set, all := range counts.sums() {
		if all.all.Own() < ownLeast || all.states.FromMemory() < ownLeast {
			t.Errorf("%s: the proxy answers less than %d%% itself", set, ownLeast)
		}
		if set == validSet && all.all.FromMemory() < ownLeast {
			t.Errorf("%s: the proxy answers less than %d%% from memory", set, ownLeast)
		}
	}
}

// runMatrix sends a target's part of a matrix, many requests at a time: most of the time is spent
// waiting.
func (s *suite) runMatrix(t *testing.T, m *matrix, target string, n *matrixCount) {
	t.Helper()
	marks := map[string]string{"${token-zero}": exchange.EncodeToken(0, "/a\x00")}
	if m.paged {
		s.addPages(t, marks, target)
	}
	path, selector, selected := strings.Cut(target, "?")
	var asking sync.WaitGroup
	for _, trial := range m.trials(target, *full) {
		query := trial.query
		if selected {
			query = selector + "&" + query
		}
		for name, value := range marks {
			query = strings.ReplaceAll(query, name, value)
		}
		s.slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-s.slots }()
			c := get(query, m.rules, path+"?"+query, either, anyStatus)
			c.Method = http.MethodGet
			if trial.accept != "" {
				c = c.with("Accept", trial.accept)
				c.name += " " + trial.accept
			}
			made := s.try(t, c)
			n.add(made)
			refused := made.Direct >= http.StatusBadRequest && made.Direct != http.StatusGone
			if m.set == validSet && refused && s.skew == nil { // older API servers refuse more
				t.Errorf("%s is not valid: %d", c.name, made.Direct)
			}
		})
	}
	asking.Wait()
}

// try sends a request both ways and returns how the answers compare. A combination that fails once
// is not tried again, unless one of the two ran out of time.
func (s *suite) try(t *testing.T, c scenario) exchange.Case {
	r := c.request
	r.Target = s.fill(r.Target)
	made := exchange.Case{Test: t.Name() + " " + c.name, Rules: strings.Fields(c.rules)}
	if result := s.inTime(t, s.plain, r); result != nil {
		for _, problem := range result.Problems {
			t.Errorf("%s %s\n%s", r.Target, r.Header["Accept"], problem)
		}
		made.By, made.Equal = result.By(), len(result.Problems) == 0
		made.Direct, made.Proxied, made.Deviation = result.Direct.Status, result.Proxied.Status, result.Deviation
	}
	s.tally.Note(made)
	return made
}

// addPages adds the continue tokens of a target's first page as each side makes them.
func (s *suite) addPages(t *testing.T, marks map[string]string, target string) {
	t.Helper()
	path, selector, _ := strings.Cut(target, "?")
	for name, e := range map[string]*endpoint{"${page-direct}": s.direct, "${page-plain}": s.plain} {
		a, err := e.Do(t.Context(),
			request{Target: s.fill(path + "?limit=1&resourceVersion=${mid}&resourceVersionMatch=Exact&" + selector)})
		must(t, err)
		var p page
		must(t, decodeJSON(a.Body, &p))
		if marks[name] = p.Metadata.Continue; p.Metadata.Continue == "" { // one name has one page
			marks[name] = s.marks["token-mid"]
		}
	}
}
